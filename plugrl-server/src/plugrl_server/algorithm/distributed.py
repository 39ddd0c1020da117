"""The base of algorithms that learn data-parallel: several learners share the gradient of each mini-batch.

Every learner holds the same weights and the same optimizer state and goes through the same mini-batches. Of each it
takes its own rows, weighs its mean loss by its part of the rows, and the gradients are added up before the optimizer's
step: the sum is the gradient of the mean loss over the whole mini-batch, also where its rows do not divide evenly. So
the number of learners changes how long a learn step takes, and nothing else.

Only rank 0 has environments, storage and checkpoints. How the processes find each other is not known here: a launcher
makes the `Collectives`.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from plugrl_server.algorithm.base_algorithm import BaseAlgorithm
from plugrl_server.algorithm.collectives import ALONE, Collectives, backward
from plugrl_server.learning.trees import Tree


class Learn(NamedTuple):
    """What rank 0 sends to the other learners at a learn step."""

    batch: Tree


class DDPAlgorithm(BaseAlgorithm):
    """An algorithm whose learn step is shared by the processes of `--learners N`, by the hooks in `HOOKS`.

    `learn_impl` runs on rank 0 alone: it prepares a batch from what is stored, hands it to `learn_together`, and
    finishes the step (clears its buffer, counts). `learn_batch` runs on every learner with that batch. It must be a
    function of the batch and of the `distributed_modules`; a random generator's state therefore travels in the batch.
    There, for each mini-batch:

        rows, weight = self.shard(minibatch, n)     # this learner's rows, and their part of the n
        self.backward(mean_loss(rows), weight)
        self.all_reduce_gradients(optimizer)        # before the gradient's norm is clipped
        optimizer.step(max_grad_norm)

    and statistics over a mini-batch (normalised advantages, an early stop by its KL) come from the whole mini-batch,
    or from shares that `add_up` has added. An algorithm without these hooks derives from `BaseAlgorithm` instead.

    Attributes:
        collectives: The other learners; alone until `join`.
        in_step: Whether the learners are in the middle of a learn step; stays true when one failed.
    """

    HOOKS: ClassVar[dict[str, str]] = {
        "distributed_modules": (
            "distributed_modules() -> dict[str, module or optimizer]: what each learner keeps a copy of; anything with "
            "state_dict and load_state_dict, an optimizer after the modules it trains"
        ),
        "learn_batch": "learn_batch(batch) -> dict: one learn step on every learner, with gradients added up",
    }
    """Hook -> signature and purpose."""

    collectives: Collectives = ALONE
    in_step: bool = False

    def __init__(self, config: Any, policy: Any) -> None:
        missing = [signature for name, signature in self.HOOKS.items() if not callable(getattr(self, name, None))]
        if missing:
            raise TypeError(
                f"{type(self).__name__} derives from DDPAlgorithm but lacks its distributed hooks:\n  "
                + "\n  ".join(missing)
                + "\nWrite them, or derive from BaseAlgorithm, which needs none."
            )
        super().__init__(config=config, policy=policy)

    @property
    def rank(self) -> int:
        """Number of this learner; 0 is the server."""
        return self.collectives.rank

    @property
    def world_size(self) -> int:
        """Number of learners."""
        return self.collectives.world_size

    def join(self, collectives: Collectives) -> None:
        """Become one of several learners, with rank 0's weights and optimizer state.

        Raises:
            LearnersLost: Another learner is gone.
        """
        self.collectives = collectives
        modules = self.distributed_modules()  # type: ignore[attr-defined] # a hook
        states = {name: module.state_dict() for name, module in modules.items()} if self.rank == 0 else None
        states = collectives.broadcast(states)
        if self.rank:
            for name, module in modules.items():
                module.load_state_dict(states[name])

    def learn_together(self, batch: Tree) -> dict[str, Any]:
        """Run `learn_batch` on every learner; called by rank 0, and returns what it returned here.

        Args:
            batch: Tensors, arrays and plain values; the same for all.

        Raises:
            LearnersLost: Another learner is gone.
        """
        self.in_step = True
        if self.world_size > 1:
            self.collectives.broadcast(Learn(batch))
        metrics: dict[str, Any] = self.learn_batch(batch)  # type: ignore[attr-defined] # a hook
        self.in_step = False
        return metrics

    # Inside learn_batch ------------------------------------------------------------------------------------------

    def shard(self, minibatch: Tree, rows: int) -> tuple[Tree, float]:
        """Return this learner's rows of a mini-batch, and their part of its rows; alone that is 1.0.

        A learner that has none, of a mini-batch of fewer rows than learners, gets one of another's with the weight 0.
        """
        return self.collectives.split(minibatch, rows)

    def backward(self, loss: Any, weight: float, inputs: Sequence[Any] | None = None) -> None:
        """Add the gradient of a mean loss over this learner's rows, by their weight, to the gradients there are."""
        backward(loss, weight, inputs)

    def all_reduce_gradients(self, optimizer: Any) -> None:
        """Add up the gradients of all learners, in float32 and by one collective.

        Args:
            optimizer: A `FlatAdam`, or an optimizer of torch's.

        Raises:
            LearnersLost: Another learner is gone.
        """
        self.collectives.add_up_gradients(optimizer)

    def add_up(self, share: Any) -> Any:
        """Return the sum of each learner's share, a tensor; the share itself is overwritten.

        Raises:
            LearnersLost: Another learner is gone.
        """
        if self.world_size > 1:
            self.collectives.add_up(share)
        return share
