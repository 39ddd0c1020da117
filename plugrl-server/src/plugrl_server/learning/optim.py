"""Adam over one flat tensor per parameter group."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


@dataclasses.dataclass
class Group:
    """Parameters that share one dtype, one device and these options.

    Attributes:
        parameters: What is optimized.
        learning_rate: May be changed between steps.
        betas: Decay of the first and second moment.
        eps: Added to the root of the second moment.
        weight_decay: Decoupled from the gradient, as in AdamW; 0 is Adam.
    """

    parameters: Sequence[nn.Parameter]
    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0


class FlatAdam:
    """Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019), the same numbers as torch's.

    Float32 parameters become views of their group's flat tensor, and their gradients views of its gradient, so a step
    costs the same few operations for any number of parameters. Parameters of another dtype (bfloat16, float16) are
    trained through the flat tensor as their float32 master copy, and get it rounded after each step: an update far
    below a bfloat16's resolution still adds up.

    Gradients must stay where they are: use `zero_grad` of this class, never `parameter.grad = None`.

    Attributes:
        groups: The groups; their options are read at every step.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = list(groups)
        self._flat = [_Flat(list(group.parameters)) for group in groups]

    @property
    def gradients(self) -> list[torch.Tensor]:
        """Each group's gradient as one flat tensor, before clipping: what data-parallel learners add up."""
        return [flat.working_gradient for flat in self._flat]

    def zero_grad(self) -> None:
        """Set all gradients to zero; a backward pass adds into them."""
        for flat in self._flat:
            flat.working_gradient.zero_()

    @torch.no_grad()
    def step(self, max_grad_norm: float | None = None, groups: Sequence[int] | None = None) -> None:
        """Clip the gradients, and update the parameters.

        Args:
            max_grad_norm: What the common norm of the gradients is clipped to; None: they are not.
            groups: Indices of the groups that step; the others do not change, and do not count a step. None: all.
        """
        stepping = range(len(self.groups)) if groups is None else groups
        flats = [self._flat[index] for index in stepping]
        for flat in flats:
            flat.collect()
        if max_grad_norm is not None:
            _clip(flats, max_grad_norm)
        for index, flat in zip(stepping, flats, strict=True):
            flat.update(self.groups[index])
            flat.spread()

    def weights(self, group: int) -> torch.Tensor:
        """Return a group's weights as one flat float32 tensor (the master copy where they have one), to be read."""
        return self._flat[group].master

    @torch.no_grad()
    def set_weights(self, group: int, weights: torch.Tensor) -> None:
        """Give a group's parameters, and their master copy, other values: flat float32, as `weights` returns them."""
        self._flat[group].master.copy_(weights)
        self._flat[group].spread()

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and step counts and, where parameters are not float32, their master copies."""
        return {"groups": [flat.state_dict() for flat in self._flat]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, after the parameters themselves were loaded. Options are not touched.

        The state of one group goes into several that hold the same parameters in the same order.

        Raises:
            ValueError: It is the state of other groups; the text says how they differ.
        """
        saved = state["groups"]
        sizes = [flat.master.numel() for flat in self._flat]
        if len(saved) == 1 and saved[0]["first_moment"].numel() == sum(sizes):
            saved = _split(saved[0], sizes)
        if len(saved) != len(self._flat):
            raise ValueError(f"the optimizer has {len(self._flat)} parameter groups, the saved one {len(saved)}")
        for flat, of_group in zip(self._flat, saved, strict=True):
            flat.load_state_dict(of_group)


def _clip(flats: Sequence["_Flat"], max_grad_norm: float) -> None:
    norms = [flat.gradient.norm() for flat in flats]
    norm = norms[0] if len(norms) == 1 else torch.stack(norms).norm()
    scale = (max_grad_norm / (norm + 1e-6)).clamp_(max=1.0)
    for flat in flats:
        flat.gradient.mul_(scale)


def _split(state: dict[str, Any], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return the state of one group as that of several, by their numbers of parameters."""
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    columns = [torch.split(value, list(sizes)) for value in tensors.values()]
    return [{**state, **dict(zip(tensors, parts, strict=True))} for parts in zip(*columns, strict=True)]


class _Flat:
    """One group's parameters as one float32 tensor, with its moments.

    `working` is the flat tensor the parameters are views of. `master` is what is updated: the same tensor where it is
    float32, else a float32 copy.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        first = parameters[0]
        if any(parameter.dtype != first.dtype or parameter.device != first.device for parameter in parameters):
            raise ValueError("the parameters of a group must share one dtype and one device")
        self.working = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.working_gradient = torch.zeros_like(self.working)
        self.has_copy = first.dtype != torch.float32
        self.master = self.working.float()
        self.gradient = self.working_gradient.float()
        self.step = 0
        self.first_moment, self.second_moment = torch.zeros_like(self.master), torch.zeros_like(self.master)
        start = 0
        for parameter in parameters:
            part = slice(start, start + parameter.numel())
            parameter.data = self.working[part].view_as(parameter)
            parameter.grad = self.working_gradient[part].view_as(parameter)
            start = part.stop

    def collect(self) -> None:
        """Bring the gradients to the master copy."""
        if self.has_copy:
            self.gradient.copy_(self.working_gradient)

    def update(self, group: Group) -> None:
        """Take Adam's step on the master copy."""
        self.step += 1
        (beta1, beta2), rate = group.betas, group.learning_rate
        if group.weight_decay:
            self.master.mul_(1 - rate * group.weight_decay)
        self.first_moment.lerp_(self.gradient, 1 - beta1)
        self.second_moment.mul_(beta2).addcmul_(self.gradient, self.gradient, value=1 - beta2)
        spread = self.second_moment.sqrt().div_((1 - beta2**self.step) ** 0.5).add_(group.eps)
        self.master.addcdiv_(self.first_moment, spread, value=-rate / (1 - beta1**self.step))

    def spread(self) -> None:
        """Round the master copy into the parameters."""
        if self.has_copy:
            self.working.copy_(self.master)

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "first_moment": self.first_moment,
            "second_moment": self.second_moment,
            "master": self.master if self.has_copy else None,
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["first_moment"].shape != self.first_moment.shape:
            sizes = self.first_moment.numel(), state["first_moment"].numel()
            raise ValueError("a group of the optimizer has {} parameters, the saved one {}".format(*sizes))
        self.step = state["step"]
        self.first_moment.copy_(state["first_moment"])
        self.second_moment.copy_(state["second_moment"])
        if self.has_copy:
            self.master.copy_(self.working if state["master"] is None else state["master"])
