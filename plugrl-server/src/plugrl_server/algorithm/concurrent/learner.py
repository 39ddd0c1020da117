"""What can learn in a process of its own: a learner that knows neither server nor schedule."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from plugrl_server.learning.replay_buffer import ReplayBuffer
from plugrl_server.learning.trees import Tree


class Learner(Protocol):
    """Takes frames and updates a policy when it is told to.

    Its random numbers come from generators of its own, which are part of its state: what it becomes is a function of
    its state and of the calls that follow.

    Attributes:
        policy: A torch module; what acting needs is in its `state_dict()`.
        replay: The frames.
        updates: Updates taken so far.
    """

    policy: Any
    replay: ReplayBuffer
    updates: int

    def add(
        self,
        *,
        obs: Tree,
        action: Tree,
        next_obs: Tree,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        nodes: Sequence[tuple[int, str]],
    ) -> list[tuple[int, str]]:
        """Store frames (arguments: `ReplayBuffer.add`), and return the nodes that the replay buffer gave them."""
        ...

    def update(self, n: int = 1) -> None:
        """Take n updates."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return the means over the updates since the last call."""
        ...

    def optimizer_state(self) -> dict[str, Any]:
        """Return the state of the optimizers."""
        ...

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """Restore what `optimizer_state` returned, after the policy was loaded."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return everything else: frames, counters, generators."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        ...


BuildLearner: TypeAlias = Callable[[], Learner]
"""Builds a learner of the right sizes, to be loaded. It travels by pickle: a `functools.partial`, not a lambda."""


def whole_state(learner: Learner) -> dict[str, Any]:
    """Return the state of a learner and its policy; some arrays may be views of the learner's own."""
    return {
        "policy": learner.policy.state_dict(),
        "optimizer": learner.optimizer_state(),
        "learner": learner.state_dict(),
    }


def load_whole_state(learner: Learner, state: dict[str, Any]) -> None:
    """Restore what `whole_state` returned.

    Raises:
        ValueError: It is the state of another learner.
        RuntimeError: It is the state of another policy.
    """
    learner.policy.load_state_dict(state["policy"])
    learner.load_optimizer_state(state["optimizer"])
    learner.load_state_dict(state["learner"])
