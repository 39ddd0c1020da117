"""The rows of one feedback message, as the vectorised hook gets them."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from plugrl_server.learning import trees

Node: TypeAlias = tuple[int, str]
"""Where an algorithm stored a frame: (slot, key). `NO_NODE` before the first frame and after a discarded one."""

NO_NODE: Node = (-1, "")


@dataclasses.dataclass(slots=True, eq=False)
class Client:
    """One connection, as long as it lasts and after.

    Attributes:
        envs: The environments it has asked actions for, by their indices, ascending.
        is_open: Whether more can come of it.
    """

    envs: tuple[int, ...] = ()
    is_open: bool = True


@dataclasses.dataclass
class FeedbackRows:
    """m transitions of m different environments.

    Attributes:
        obs: The observation that was acted on, a tree of leading m; so are the next three.
        runtime_state: The policy's state from `infer`.
        train_state: The algorithm's state from `derive_train_state`.
        next_obs: The observation after the chunk; on a done row the final one of its episode.
        terminated: Whether the *previous* frame of the environment terminated (this one starts an episode), b1[m].
        truncated: Whether the previous frame was truncated, b1[m].
        reward: The sum over the chunk, f4[m].
        info: The row's own map of each row.
        next_terminated: Whether this frame terminates its episode, b1[m].
        next_truncated: Whether this frame truncates its episode, b1[m].
        nodes: The node of each environment's previous frame; an algorithm writes the new one of each row it takes.
        client: Whose environments these are; None where nobody says.
        env_indices: Their indices on that connection, i8[m]; None where nobody says.
    """

    obs: Any
    runtime_state: Any
    train_state: Any
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: Any
    reward: np.ndarray
    info: Sequence[dict[str, Any]]
    next_terminated: np.ndarray
    next_truncated: np.ndarray
    nodes: list[Node]
    client: Client | None = None
    env_indices: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.reward)

    def row(self, i: int) -> dict[str, Any]:
        """Return row i as the keyword arguments of `feedback`: trees of leading 1, scalars of Python."""
        one = slice(i, i + 1)
        return {
            "obs": trees.take(self.obs, one),
            "runtime_state": trees.take(self.runtime_state, one),
            "train_state": trees.take(self.train_state, one),
            "terminated": bool(self.terminated[i]),
            "truncated": bool(self.truncated[i]),
            "next_obs": trees.take(self.next_obs, one),
            "reward": float(self.reward[i]),
            "info": self.info[i],
            "next_terminated": bool(self.next_terminated[i]),
            "next_truncated": bool(self.next_truncated[i]),
            "prev_node": self.nodes[i],
        }

    def select(self, start: int, stop: int | None = None) -> "FeedbackRows":
        """Return the rows from `start` up to `stop` (all the rest by default), arrays as views."""
        rows = slice(start, stop)
        return FeedbackRows(
            obs=trees.take(self.obs, rows),
            runtime_state=trees.take(self.runtime_state, rows),
            train_state=trees.take(self.train_state, rows),
            terminated=self.terminated[rows],
            truncated=self.truncated[rows],
            next_obs=trees.take(self.next_obs, rows),
            reward=self.reward[rows],
            info=[self.info[i] for i in range(*rows.indices(len(self)))],
            next_terminated=self.next_terminated[rows],
            next_truncated=self.next_truncated[rows],
            nodes=self.nodes[rows],
            client=self.client,
            env_indices=None if self.env_indices is None else self.env_indices[rows],
        )

    def tail(self, start: int) -> "FeedbackRows":
        """Return the rows from `start` on."""
        return self.select(start)

    @staticmethod
    def one(
        *,
        obs: Any,
        runtime_state: Any,
        train_state: Any,
        terminated: bool,
        truncated: bool,
        next_obs: Any,
        reward: float,
        info: dict[str, Any],
        next_terminated: bool,
        next_truncated: bool,
        prev_node: Node,
    ) -> "FeedbackRows":
        """Return the arguments of one `feedback` call as rows: the inverse of `row`."""
        return FeedbackRows(
            obs=obs,
            runtime_state=runtime_state,
            train_state=train_state,
            terminated=np.array([terminated]),
            truncated=np.array([truncated]),
            next_obs=next_obs,
            reward=np.array([reward], np.float32),
            info=(info,),
            next_terminated=np.array([next_terminated]),
            next_truncated=np.array([next_truncated]),
            nodes=[prev_node],
        )
