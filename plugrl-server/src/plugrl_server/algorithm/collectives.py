"""What the learners of a run do together: share rows, add up tensors, and hear what the first of them says."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from plugrl_server.learning import trees
from plugrl_server.learning.trees import Tree


class LearnersLost(RuntimeError):  # noqa: N818 - what happened, not whose error it is
    """Another learner of the run is gone, or does not answer."""


class Collectives:
    """The operations of a learner that is alone, where each is the identity.

    Attributes:
        rank: Number of this learner; 0 is the server.
        world_size: How many there are.
    """

    rank: int = 0
    world_size: int = 1

    def shard(self, rows: int) -> slice:
        """Return this learner's part of `rows` rows: contiguous, and the parts' sizes differ by at most one."""
        return slice(rows * self.rank // self.world_size, rows * (self.rank + 1) // self.world_size)

    def split(self, minibatch: Tree, rows: int) -> tuple[Tree, float]:
        """Return this learner's rows of a mini-batch, and their part of its rows; alone that is 1.0.

        A learner that has none, of a mini-batch of fewer rows than learners, gets one of another's with the weight 0.
        """
        if self.world_size == 1:
            return minibatch, 1.0
        mine = self.shard(rows)
        weight = (mine.stop - mine.start) / rows
        return trees.take(minibatch, mine if weight else slice(mine.start, mine.start + 1)), weight

    def add_up_gradients(self, optimizer: Any) -> None:
        """Add up the gradients of all learners, in float32 and by one collective.

        Args:
            optimizer: A `FlatAdam`, or an optimizer of torch's.

        Raises:
            LearnersLost: Another learner is gone.
        """
        if self.world_size > 1:
            _add_up_together(self, _gradients(optimizer))

    def add_up(self, tensor: Any) -> None:
        """Replace a tensor, in place, by its sum over all learners: bitwise the same on each.

        Raises:
            LearnersLost: Another learner is gone.
        """

    def broadcast(self, tree: Tree = None) -> Tree:
        """Return the tree that rank 0 passed; what the others pass is not read.

        Waits as long as it takes, since environments may be slow between two learn steps. Tensors arrive on the same
        kind of device; so do large arrays, and everything else is pickled.

        Raises:
            LearnersLost: Another learner is gone.
        """
        return tree


ALONE = Collectives()


def weighed(mean: Any, weight: float) -> Any:
    """Return a mean over a learner's rows times their weight: its share of the mean over all rows."""
    return mean if weight == 1.0 else weight * mean


def backward(loss: Any, weight: float, inputs: Sequence[Any] | None = None) -> None:
    """Add the gradient of a mean loss over a learner's rows, by their weight, to the gradients there are."""
    import torch

    torch.autograd.backward(weighed(loss, weight), inputs=inputs)


def _gradients(optimizer: Any) -> list[Any]:
    """Return the gradients that an optimizer reads; one that no backward pass has reached is made, of zeros."""
    if hasattr(optimizer, "gradients"):  # FlatAdam: one flat tensor a group
        return list(optimizer.gradients)
    import torch

    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return [parameter.grad for parameter in parameters]


def _add_up_together(collectives: Collectives, tensors: list[Any]) -> None:
    """Replace each tensor, in place, by its sum over all learners; they travel as one flat tensor of float32."""
    import torch

    if len(tensors) == 1 and tensors[0].dtype == torch.float32 and tensors[0].is_contiguous():
        collectives.add_up(tensors[0])
        return
    joined = torch.cat([tensor.reshape(-1).float() for tensor in tensors])
    collectives.add_up(joined)
    for tensor, total in zip(tensors, torch.split(joined, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(total.view_as(tensor))


class TorchCollectives(Collectives):
    """The operations over torch.distributed.

    Args:
        control: A process group for CPU tensors that waits as long as it takes.
        data: The process group for tensors (gloo, or nccl for those on CUDA); None for the default one.
    """

    def __init__(self, control: Any, data: Any = None) -> None:
        import torch.distributed

        self._torch, self._dist = torch, torch.distributed
        self._control, self._data = control, data
        self.rank, self.world_size = self._dist.get_rank(), self._dist.get_world_size()

    def add_up(self, tensor: Any) -> None:
        """See `Collectives.add_up`."""
        try:
            self._dist.all_reduce(tensor, group=self._data)
        except RuntimeError as error:
            raise _lost(error) from error

    def broadcast(self, tree: Tree = None) -> Tree:
        """See `Collectives.broadcast`: one pickled outline, then the tensors, each by itself."""
        outline = [trees.map_leaves(_described, tree) if self.rank == 0 else None]
        try:
            self._dist.broadcast_object_list(outline, src=0, group=self._control, device=self._torch.device("cpu"))
            if self.rank == 0:
                trees.map_leaves(self._exchange, tree)
                return tree
            return trees.map_leaves(lambda leaf: self._exchange(_allocated(leaf)), outline[0])
        except RuntimeError as error:
            raise _lost(error) from error

    def _exchange(self, leaf: Any) -> Any:
        """Send or receive a tensor or a large array; leave any other leaf as it is."""
        # What a receiver allocated is contiguous and writable, so it is filled in place.
        tensor = self._torch.from_numpy(np.require(leaf, None, ["C", "W"])) if _is_large_array(leaf) else leaf
        if trees.is_tensor(tensor) and tensor.numel():
            self._dist.broadcast(tensor.detach().contiguous(), src=0, group=self._data)
        return leaf


@dataclasses.dataclass(frozen=True)
class _Empty:
    """The place of a tensor (or, without a device, an array) in an outline."""

    shape: tuple[int, ...]
    dtype: Any
    device: str | None


LARGE = 2**16
"""Bytes from which on an array is worth a message of its own."""


def _is_large_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.nbytes >= LARGE and leaf.dtype.name in _NUMBERS


_NUMBERS = {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"}


def _described(leaf: Any) -> Any:
    if _is_large_array(leaf):
        return _Empty(leaf.shape, leaf.dtype, None)
    return _Empty(tuple(leaf.shape), leaf.dtype, leaf.device.type) if trees.is_tensor(leaf) else leaf


def _allocated(leaf: Any) -> Any:
    if not isinstance(leaf, _Empty):
        return leaf
    if leaf.device is None:
        return np.empty(leaf.shape, leaf.dtype)
    import torch

    return torch.empty(leaf.shape, dtype=leaf.dtype, device=leaf.device)


def _lost(error: Exception) -> LearnersLost:
    reason = re.sub(r"^\[\S+\] ", "", str(error).strip())  # the place in torch's sources
    reason = reason.partition("\n")[0].partition(". ")[0]
    return LearnersLost(f"another learner is gone or does not answer: {reason:.200}")
