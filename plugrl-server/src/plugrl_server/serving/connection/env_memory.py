"""What the server remembers of one connection's environments (SPEC 7.6: for exactly as long as the connection).

The observation, states and policy version behind each running chunk lie in rows of preallocated arrays; an env gets a
row when its action is chosen and gives it back with the feedback, so that no feedback is used twice (lesson 4).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from plugrl_server.algorithm.feedback_rows import NO_NODE, Node
from plugrl_server.learning import trees

SMALLEST = 8
"""Rows and envs that storage begins with; it doubles as needed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Steps:
    """The step states of the k envs of a feedback (of m) that held one.

    Attributes:
        held: Whether the env held a step state, b1[m]; the others' feedback answers no action of this connection.
        obs: The observations acted on, a tree of leading k.
        runtime_state: The policy's states, a tree of leading k.
        train_state: The algorithm's states, a tree of leading k.
        versions: The policy versions that acted, i8[k].
        terminated: Whether the env's previous frame terminated, b1[k].
        truncated: Whether the env's previous frame was truncated, b1[k].
        nodes: The nodes of the env's previous frame, k of them.
    """

    held: np.ndarray
    obs: Any
    runtime_state: Any
    train_state: Any
    versions: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    nodes: list[Node]


class EnvMemory:
    """Step states by env index, previous flags and previous nodes of one connection."""

    def __init__(self) -> None:
        self._row = np.full(SMALLEST, -1, np.int32)  # by env index: its row of the store, -1 for none
        self._terminated = np.zeros(SMALLEST, np.bool_)
        self._truncated = np.zeros(SMALLEST, np.bool_)
        self._nodes: dict[int, Node] = {}
        self._free: list[int] = []
        self._store: tuple[Any, Any, Any] | None = None
        self._version = np.zeros(0, np.int64)

    def remember(self, env_indices: np.ndarray, obs: Any, runtime_state: Any, train_state: Any, version: int) -> None:
        """Keep what the actions of n envs were chosen from, in place of what those envs held.

        Args:
            env_indices: i8[n], unique.
            obs: Observations, a tree of leading n; their structure and row shapes stay the same on a connection.
            runtime_state: The policy's states, a tree of leading n.
            train_state: The algorithm's states, a tree of leading n.
            version: The policy version that acted.

        Raises:
            ValueError: A tree's structure or row shape differs from that of earlier calls.
        """
        self._know(env_indices)
        rows = self._row[env_indices]
        homeless = rows < 0
        if homeless.any():
            rows[homeless] = self._allocate(int(homeless.sum()), (obs, runtime_state, train_state))
            self._row[env_indices] = rows
        self._store = trees.map_leaves(
            lambda store, leaf: _write(store, rows, leaf), self._store, (obs, runtime_state, train_state)
        )
        self._version[rows] = version

    def take(self, env_indices: np.ndarray) -> Steps:
        """Hand out and forget the step states of m envs (i8[m], unique)."""
        self._know(env_indices)
        rows = self._row[env_indices]
        held = rows >= 0
        envs = env_indices
        if not held.all():
            rows, envs = rows[held], env_indices[held]
        self._row[envs] = -1
        self._free += rows.tolist()
        obs, runtime_state, train_state = trees.take(self._store, rows) if len(rows) else (None, None, None)
        return Steps(
            held=held,
            obs=obs,
            runtime_state=runtime_state,
            train_state=train_state,
            versions=self._version[rows],
            terminated=self._terminated[envs],
            truncated=self._truncated[envs],
            nodes=list(map(self._nodes.get, envs.tolist(), repeat(NO_NODE))),
        )

    def settle(
        self, env_indices: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, nodes: Sequence[Node]
    ) -> None:
        """Keep the outcome of the frames of m envs, for the frames that follow them.

        Args:
            env_indices: i8[m], unique, each seen by `take`.
            terminated: b1[m].
            truncated: b1[m].
            nodes: The m nodes of the stored frames, `NO_NODE` for a discarded one.
        """
        self._terminated[env_indices] = terminated
        self._truncated[env_indices] = truncated
        self._nodes.update(zip(env_indices.tolist(), nodes, strict=True))

    def _know(self, env_indices: np.ndarray) -> None:
        """Make room for the highest env index."""
        envs = len(self._row)
        highest = int(env_indices.max(initial=0))
        if highest >= envs:
            more = 2 ** int(highest).bit_length() - envs
            self._row = np.append(self._row, np.full(more, -1, np.int32))
            self._terminated = np.append(self._terminated, np.zeros(more, np.bool_))
            self._truncated = np.append(self._truncated, np.zeros(more, np.bool_))

    def _allocate(self, count: int, example: tuple[Any, Any, Any]) -> list[int]:
        """Return `count` free rows of the store, growing it when there are not enough."""
        if len(self._free) < count:
            old = len(self._version)
            new = max(SMALLEST, 2 * old, old + count)
            bigger = trees.map_leaves(lambda leaf: _blank(leaf, new), example if self._store is None else self._store)
            if self._store is not None:
                bigger = trees.map_leaves(lambda into, leaf: _write(into, slice(0, old), leaf), bigger, self._store)
            self._store = bigger
            self._version = np.append(self._version, np.zeros(new - old, np.int64))
            self._free = list(range(new - 1, old - 1, -1)) + self._free
        taken = self._free[-count:][::-1]
        del self._free[-count:]
        return taken


def _blank(leaf: Any, rows: int) -> Any:
    """Return storage for `rows` rows like those of a leaf; a tensor's stays a tensor on its device."""
    shape = (rows, *leaf.shape[1:])
    return leaf.detach().new_empty(shape) if trees.is_tensor(leaf) else np.empty(shape, leaf.dtype)


def _write(store: Any, rows: Any, leaf: Any) -> Any:
    """Write a leaf into rows of its store and return the store, widened where its dtype cannot hold the leaf's."""
    if leaf.shape[1:] != store.shape[1:]:
        raise ValueError(f"rows of shape {list(leaf.shape[1:])} after rows of shape {list(store.shape[1:])}")
    if trees.is_tensor(store):
        store[rows] = leaf.detach()
        return store
    if leaf.dtype != store.dtype:
        store = store.astype(np.promote_types(store.dtype, leaf.dtype))  # a longer text, f4 after f8
    store[rows] = leaf
    return store
