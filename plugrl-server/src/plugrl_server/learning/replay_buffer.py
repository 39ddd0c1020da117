"""Storage of frames for off-policy learning: a ring in which every observation is stored once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from plugrl_server.learning import trees
from plugrl_server.learning.trees import GrowingRows, RowPool, Tree

NONE = -1
KEY = "replay"
"""The key of this buffer's nodes, `(number, KEY)`; a frame's number counts all frames ever added before it."""


class Batch(NamedTuple):
    """n frames drawn from a buffer, as NumPy arrays of their own.

    Attributes:
        obs: What was acted on, a tree of leading n.
        action: What the algorithm kept of the action, a tree of leading n.
        reward: f4[n].
        next_obs: What followed, of the structure of `obs`; on a done frame the final observation of its episode.
        terminated: Whether the frame ended its episode, b1[n]: no value is bootstrapped.
        truncated: Whether the frame cut its episode off, b1[n]: the value of `next_obs` is bootstrapped.
    """

    obs: Tree
    action: Tree
    reward: np.ndarray
    next_obs: Tree
    terminated: np.ndarray
    truncated: np.ndarray


class ReplayBuffer:
    """The latest `capacity` frames; dtypes stay what they are (uint8 images stay uint8).

    Observations are rows of one store. A frame names two of them: `obs_row`, what was acted on, and `next_row`, what
    followed. The frame after it in the same environment acts on that very row, so a frame costs one row, and two only
    where a chain begins. The ring overwrites the oldest frame first, which is always older than its successor: when a
    frame goes, nobody else needs its `obs_row`, and its `next_row` goes with it unless a successor acts on it.

    Memory grows with the frames, by doubling; nothing is allocated before the first one.

    Args:
        capacity: Frames it holds.

    Attributes:
        added: Frames added so far; frame number i lies in slot i % capacity.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"A buffer needs room for at least 1 frame, got {capacity}.")
        self.capacity = capacity
        self.added = 0
        self._frames = GrowingRows(limit=capacity)
        self._observations = RowPool()

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    @property
    def obs_row(self) -> np.ndarray:
        """Row of each slot's observation, i8."""
        return self._column("obs_row")

    @property
    def next_row(self) -> np.ndarray:
        """Row of each slot's next observation, i8."""
        return self._column("next_row")

    @property
    def continued(self) -> np.ndarray:
        """Whether the frame after a slot's acts on its `next_row`, b1."""
        return self._column("continued")

    @property
    def observation_rows(self) -> int:
        """Observations that are stored."""
        return self._observations.in_use

    # Adding ------------------------------------------------------------------------------------------------------

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
        """Store one frame of each of m different environments; returns their nodes.

        Args:
            obs: Tree of leading m; so are `action` and `next_obs` (of the structure of `obs`).
            action: What the algorithm keeps of its action.
            next_obs: The observation after it.
            reward: f4[m].
            terminated: The frame's own outcome, b1[m].
            truncated: The frame's own outcome, b1[m].
            nodes: The node of the frame before each. Where that frame is stored and not done, and `obs` is what was
                its `next_obs`, it is not stored again. (A client in real time may have observed once more since.)
        """
        frames = {"action": action, "reward": reward, "terminated": terminated, "truncated": truncated}
        if len(reward) <= self.capacity:
            return self._add(obs, next_obs, frames, nodes)
        added: list[tuple[int, str]] = []
        for start in range(0, len(reward), self.capacity):
            part = slice(start, start + self.capacity)
            added += self._add(trees.take(obs, part), trees.take(next_obs, part), trees.take(frames, part), nodes[part])
        return added

    def _add(
        self, obs: Tree, next_obs: Tree, frames: dict[str, Tree], nodes: Sequence[tuple[int, str]]
    ) -> list[tuple[int, str]]:
        numbers = np.arange(self.added, self.added + len(nodes))
        slots = numbers % self.capacity
        self._forget(slots[numbers >= self.capacity])
        rows = self._rows_of_predecessors(nodes, obs, oldest=int(numbers[-1]) + 1 - self.capacity)
        fresh = np.flatnonzero(rows == NONE)
        if len(fresh):
            rows[fresh] = self._observations.add(len(fresh), trees.take(obs, fresh))
        next_rows = self._observations.add(len(nodes), next_obs)
        places = {"obs_row": rows, "next_row": next_rows, "continued": np.zeros(len(nodes), bool)}
        self._frames.put(slots, {**frames, **places})
        self.added += len(nodes)
        return [(number, KEY) for number in numbers.tolist()]

    def _forget(self, slots: np.ndarray) -> None:
        """Give back the rows of the frames in these slots, which are about to be overwritten."""
        if len(slots):
            self._observations.give_back(self.obs_row[slots])
            self._observations.give_back(self.next_row[slots[~self.continued[slots]]])

    def _rows_of_predecessors(self, nodes: Sequence[tuple[int, str]], obs: Tree, oldest: int) -> np.ndarray:
        """Return the rows that hold the observations already, as the predecessors' next ones; -1 where none does."""
        rows = np.full(len(nodes), NONE)
        before = np.array([number if key == KEY else NONE for number, key in nodes], np.int64)
        at = np.flatnonzero((before >= max(oldest, 0)) & (before < self.added))
        slots = before[at] % self.capacity
        if len(slots):
            ends = self._column("terminated")[slots] | self._column("truncated")[slots] | self.continued[slots]
            at, slots = at[~ends], slots[~ends]
            same = self._hold(self.next_row[slots], trees.take(obs, at))
            at, slots = at[same], slots[same]
            rows[at] = self.next_row[slots]
            self.continued[slots] = True
        return rows

    def _hold(self, rows: np.ndarray, obs: Tree) -> np.ndarray:
        """Return which of these rows hold the observations of a tree of leading m, b1[m]."""
        same = np.ones(len(rows), bool)

        def compare(stored: np.ndarray, leaf: Tree) -> None:
            differs = stored[rows] != trees.as_numpy(leaf).astype(stored.dtype, copy=False)
            same[:] &= ~differs.any(axis=tuple(range(1, differs.ndim)))

        trees.map_leaves(compare, self._observations.tree, obs)
        return same

    # Drawing -----------------------------------------------------------------------------------------------------

    def sample(self, n: int, rng: np.random.Generator) -> Batch:
        """Return n frames, drawn uniformly with replacement.

        Raises:
            ValueError: Nothing is stored.
        """
        return self.frames(rng.integers(0, len(self), n))

    def frames(self, slots: np.ndarray) -> Batch:
        """Return the frames in these slots, i8[n], each below `len(self)`."""
        frames, observations = self._frames.tree, self._observations.tree
        return Batch(
            obs=trees.take(observations, frames["obs_row"][slots]),
            action=trees.take(frames["action"], slots),
            reward=frames["reward"][slots],
            next_obs=trees.take(observations, frames["next_row"][slots]),
            terminated=frames["terminated"][slots],
            truncated=frames["truncated"][slots],
        )

    # State -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the stored frames and the observations they use, and no unused row.

        The arrays are views where no row is unused: serialise or copy them before the next frame is added.
        """
        if not self.added:
            return {"added": 0}
        frames = trees.take(self._frames.tree, slice(0, len(self)))
        rows = np.union1d(frames["obs_row"], frames["next_row"])
        if len(rows) == self._observations.used:
            return {"added": self.added, "frames": frames, "observations": self._observations.rows()}
        renumbered = {name: np.searchsorted(rows, frames[name]) for name in ("obs_row", "next_row")}
        observations = trees.take(self._observations.tree, rows)
        return {"added": self.added, "frames": {**frames, **renumbered}, "observations": observations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore frames: the same slots hold the same frames, so the same random numbers draw the same batches.

        Raises:
            ValueError: They were stored in a buffer of another capacity whose ring had come round, or do not fit.
        """
        frames, added = state.get("frames"), state["added"]
        stored = trees.leading(frames) or 0
        if stored > self.capacity or (added > stored and stored < self.capacity):
            raise ValueError(f"{stored} frames of {added} were stored; this buffer holds {self.capacity}.")
        self.added = added
        self._frames, self._observations = GrowingRows(limit=self.capacity), RowPool()
        if stored:
            self._frames.put(np.arange(stored), frames)
            observations = state["observations"]
            self._observations.add(trees.leading(observations) or 0, observations)

    def _column(self, name: str) -> np.ndarray:
        column: np.ndarray = self._frames.tree[name]
        return column
