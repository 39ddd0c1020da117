"""What the server remembers of one connection's environments (SPEC 7.6: for exactly as long as the connection).

The observation, states and policy version behind each running chunk lie in rows of preallocated arrays; an env gets a
row when its action is chosen and gives it back with the feedback, so that no feedback is used twice (lesson 4).
"""

from __future__ import annotations

import dataclasses
from itertools import repeat
from typing import Any

import numpy as np

from plugrl_server.algorithm.feedback_rows import NO_NODE, Node
from plugrl_server.learning import trees

SMALLEST = 8
"""Rows and envs that storage begins with; it doubles as needed."""


@dataclasses.dataclass(slots=True, eq=False)
class Steps:
    """The step states of the k envs of a feedback (of m) that held one.

    Attributes:
        held: Whether the env held a step state, b1[m]; None where all did. The others' feedback answers no action.
        obs: The observations acted on, a tree of leading k.
        runtime_state: The policy's states, a tree of leading k.
        train_state: The algorithm's states, a tree of leading k.
        versions: The policy versions that acted, i8[k], or one for all.
        terminated: Whether the env's previous frame terminated, b1[k].
        truncated: Whether the env's previous frame was truncated, b1[k].
        nodes: The nodes of the env's previous frame, k of them.
    """

    held: np.ndarray | None
    obs: Any
    runtime_state: Any
    train_state: Any
    versions: np.ndarray | int
    terminated: np.ndarray
    truncated: np.ndarray
    nodes: list[Node]


@dataclasses.dataclass(slots=True, eq=False)
class _Asked:
    """The envs asked about last: what their actions were chosen from."""

    env_indices: np.ndarray
    key: bytes
    states: tuple[Any, Any, Any]
    version: int


@dataclasses.dataclass(slots=True, eq=False)
class _Settled:
    """The envs reported on last: the outcome of their frames. Copies: a view would keep the whole message alive."""

    key: bytes
    terminated: np.ndarray
    truncated: np.ndarray
    nodes: list[Node]


class EnvMemory:
    """Step states by env index, previous flags and previous nodes of one connection.

    Most clients report on exactly the envs they asked about, time after time. What they asked and reported last is
    kept as it is, and handed back as it is; only where the sets differ are rows written to arrays and gathered again.
    """

    def __init__(self) -> None:
        self._asked: _Asked | None = None
        self._settled: _Settled | None = None
        self._terminated = np.zeros(SMALLEST, np.bool_)  # by env index
        self._truncated = np.zeros(SMALLEST, np.bool_)
        self._nodes: dict[int, Node] = {}
        self._row = np.full(SMALLEST, -1, np.int32)  # by env index: its row of the store, -1 for none
        self._store: tuple[Any, Any, Any] | None = None
        self._version = np.zeros(0, np.int64)  # by row
        self._free: list[int] = []

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
        if self._asked is not None:
            self._put_away(self._asked)
        if len(self._free) < len(self._version):
            self._know(env_indices)
            self._forget(env_indices)
        self._asked = _Asked(env_indices, env_indices.tobytes(), (obs, runtime_state, train_state), version)

    def take(self, env_indices: np.ndarray) -> Steps:
        """Hand out and forget the step states of m envs (i8[m], unique)."""
        asked, key = self._asked, env_indices.tobytes()
        if asked is not None and asked.key == key:
            self._asked = None
            return self._steps(None, asked.states, asked.version, env_indices, key)
        if asked is not None:
            self._put_away(asked)
            self._asked = None
        self._know(env_indices)
        rows = self._row[env_indices]
        held = rows >= 0
        rows, envs = rows[held], env_indices[held]
        states = trees.take(self._store, rows) if len(rows) else (None, None, None)
        self._forget(envs)
        return self._steps(held, states, self._version[rows], envs, envs.tobytes())

    def settle(self, env_indices: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, nodes: list[Node]) -> None:
        """Keep the outcome of the frames of m envs, for the frames that follow them.

        Args:
            env_indices: i8[m], unique.
            terminated: b1[m].
            truncated: b1[m].
            nodes: The m nodes of the stored frames, `NO_NODE` for a discarded one.
        """
        key = env_indices.tobytes()
        if self._settled is not None and self._settled.key != key:
            self._spread(self._settled)
        self._settled = _Settled(key, terminated.copy(), truncated.copy(), nodes)

    # Previous frames ---------------------------------------------------------------------------------------------

    def _steps(
        self,
        held: np.ndarray | None,
        states: tuple[Any, Any, Any],
        versions: np.ndarray | int,
        envs: np.ndarray,
        key: bytes,
    ) -> Steps:
        """Return step states with the flags and nodes of their envs' previous frames."""
        settled = self._settled
        if settled is not None and settled.key == key:
            return Steps(held, *states, versions, settled.terminated, settled.truncated, [*settled.nodes])
        if settled is not None:
            self._spread(settled)
            self._settled = None
        self._know(envs)
        nodes = list(map(self._nodes.get, envs.tolist(), repeat(NO_NODE)))
        return Steps(held, *states, versions, self._terminated[envs], self._truncated[envs], nodes)

    def _spread(self, settled: _Settled) -> None:
        envs = np.frombuffer(settled.key, np.int64)
        self._know(envs)
        self._terminated[envs] = settled.terminated
        self._truncated[envs] = settled.truncated
        self._nodes.update(zip(envs.tolist(), settled.nodes, strict=True))

    def _know(self, env_indices: np.ndarray) -> None:
        """Make room for the highest env index."""
        envs = len(self._row)
        highest = int(env_indices.max(initial=0))
        if highest >= envs:
            more = 2 ** highest.bit_length() - envs
            self._row = np.append(self._row, np.full(more, -1, np.int32))
            self._terminated = np.append(self._terminated, np.zeros(more, np.bool_))
            self._truncated = np.append(self._truncated, np.zeros(more, np.bool_))

    # Step states -------------------------------------------------------------------------------------------------

    def _forget(self, envs: np.ndarray) -> None:
        """Free the rows of the store that envs hold."""
        rows = self._row[envs]
        self._free += rows[rows >= 0].tolist()
        self._row[envs] = -1

    def _put_away(self, asked: _Asked) -> None:
        """Write step states to the store; none of their envs holds a row of it."""
        self._know(asked.env_indices)
        rows = np.array(self._allocate(len(asked.env_indices), asked.states))
        self._row[asked.env_indices] = rows
        self._version[rows] = asked.version
        self._store = trees.map_leaves(lambda store, leaf: _write(store, rows, leaf), self._store, asked.states)

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
