"""On-policy frames in order of arrival, chained by environment.

Frames of many environments arrive interleaved and ragged. Each names the frame before it in its environment by the
node the buffer gave that frame; a chain is what hangs together that way, over episode ends. For scans over time,
`layout` lays the chains out as columns.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from plugrl_server.learning import trees
from plugrl_server.learning.trees import RowPool, Tree

NONE = -1


class Stored(NamedTuple):
    """The frames of a buffer, each array's first axis of length `size`; see `RolloutBuffer` for the names.

    Attributes:
        cut: Whether nothing of the frame's return comes from the frame after it: it is done, or the last of its chain.
    """

    obs: Tree
    train_state: Tree
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    carried: np.ndarray
    successor: np.ndarray
    final: np.ndarray
    cut: np.ndarray


class RolloutBuffer:
    """Preallocated storage of up to `capacity` frames; dtypes stay what they are (uint8 images stay uint8).

    Next observations are kept only where no later frame's `obs` stands for them: on truncated frames and at the ends
    of chains. So image observations are stored once.

    Args:
        capacity: Frames it takes before it is full.

    Attributes:
        key: The key of the nodes of this filling; nodes of earlier ones do not continue here.
        size: Frames it holds; the first `size` rows of every array are in use.
        obs: Tree of observations, rows [capacity, ...]; so is `train_state`.
        reward: f4[capacity]; `terminated` and `truncated`, b1[capacity], are the frame's own outcome.
        carried: What the running discounted return takes over from before this buffer, f4[capacity].
        successor: Slot of the next frame in the same environment, or -1, i8[capacity].
        chain: Number of the chain a frame is in, i8[capacity]; `depth` is its place there.
        final: Row of `final_obs` that holds the frame's next observation, or -1, i8[capacity].
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self.obs: Tree = None
        self.train_state: Tree = None
        self.reward = np.zeros(capacity, np.float32)
        self.terminated = np.zeros(capacity, bool)
        self.truncated = np.zeros(capacity, bool)
        self.carried = np.zeros(capacity, np.float32)
        self.successor = np.full(capacity, NONE)
        self.chain = np.full(capacity, NONE)
        self.depth = np.zeros(capacity, np.int64)
        self.final = np.full(capacity, NONE)
        self._chains = 0
        self._finals = RowPool()
        self._filling = 0
        self.key, self._key_before = _key(0), _key(-1)
        self._carry = np.zeros(0, np.float32)

    def __len__(self) -> int:
        return self.size

    @property
    def final_obs(self) -> Tree:
        """The next observations that are kept, a tree of rows; None before the first one."""
        return self._finals.rows()

    @property
    def full(self) -> bool:
        """Whether no frame fits any more."""
        return self.size >= self.capacity

    def size_for(self, train_state: Tree) -> None:
        """Allocate the train states like an example of any number of rows; without it the first frames are one."""
        self.train_state = trees.alloc_like(train_state, self.capacity)

    def add(
        self,
        *,
        obs: Tree,
        train_state: Tree,
        next_obs: Tree,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        nodes: Sequence[tuple[int, str]],
    ) -> list[tuple[int, str]]:
        """Store one frame of each of m different environments; returns their nodes.

        Args:
            obs: Tree of leading m; so are `train_state` and `next_obs` (of the structure of `obs`).
            train_state: What the algorithm keeps of its action.
            next_obs: The observation after it.
            reward: f4[m].
            terminated: The frame's own outcome, b1[m].
            truncated: The frame's own outcome, b1[m].
            nodes: The node of the frame before each.

        Raises:
            ValueError: More frames than there is room for.
        """
        rows = len(reward)
        if rows > self.capacity - self.size:
            raise ValueError(f"{rows} frames do not fit: {self.size} of {self.capacity} are stored.")
        if self.obs is None:
            self.obs = trees.alloc_like(obs, self.capacity)
        if self.train_state is None:
            self.size_for(train_state)
        into = slice(self.size, self.size + rows)
        trees.put(self.obs, into, obs)
        trees.put(self.train_state, into, train_state)
        self.reward[into] = reward
        self.terminated[into] = terminated
        self.truncated[into] = truncated
        self.carried[into] = self._carried_over(nodes)
        self._link(into, self._slots(nodes))
        self._keep_finals(np.flatnonzero(~terminated), next_obs)
        self.size += rows
        key = self.key
        return [(slot, key) for slot in range(into.start, into.stop)]

    def layout(self) -> np.ndarray:
        """Return the slots as columns in time, i8[T, E], -1 where a column holds nothing (only at its end).

        T is the length of the longest chain; shorter chains stand in one column end to end, so that at most half of
        the cells (and one column) are empty, however ragged the chains are.
        """
        lengths = np.bincount(self.chain[: self.size], minlength=self._chains)
        height = int(lengths.max(initial=0))
        column, start = np.zeros(self._chains, np.int64), np.zeros(self._chains, np.int64)
        at, used = 0, 0
        for chain in np.argsort(-lengths, kind="stable").tolist():
            if used + lengths[chain] > height:
                at, used = at + 1, 0
            column[chain], start[chain] = at, used
            used += int(lengths[chain])
        index = np.full((height, at + 1), NONE)
        chains = self.chain[: self.size]
        index[start[chains] + self.depth[: self.size], column[chains]] = np.arange(self.size)
        return index

    def stored(self) -> Stored:
        """Return views of the frames."""
        rows = slice(0, self.size)
        trees_ = (trees.take(self.obs, rows), trees.take(self.train_state, rows))
        flags = (self.terminated[rows], self.truncated[rows])
        cut = flags[0] | flags[1] | (self.successor[rows] == NONE)
        return Stored(
            *trees_, self.reward[rows], *flags, self.carried[rows], self.successor[rows], self.final[rows], cut
        )

    def clear(self, carry: np.ndarray | None = None) -> None:
        """Forget all frames.

        Args:
            carry: What each frame's environment takes over into the next filling (see `carried`), f4[size].
        """
        ended = self.terminated[: self.size] | self.truncated[: self.size]
        self._carry = np.zeros(0, np.float32) if carry is None else np.where(ended, np.float32(0), carry)
        self.successor[:] = NONE
        self.final[:] = NONE
        self.size = self._chains = 0
        self._finals.clear()
        self._filling += 1
        self.key, self._key_before = _key(self._filling), self.key

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the frames, for a checkpoint taken before the buffer is full."""
        if self.size == 0:
            return {"size": 0}
        rows = slice(0, self.size)
        arrays = {name: getattr(self, name)[rows].copy() for name in _PER_FRAME}
        stores = {name: trees.map_leaves(np.array, trees.take(getattr(self, name), rows)) for name in _STORES}
        final_obs = trees.map_leaves(np.array, self.final_obs)
        return {"size": self.size, "chains": self._chains, **arrays, **stores, "final_obs": final_obs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore frames. The environments they came from are gone, so their chains end there.

        Raises:
            ValueError: They do not fit.
        """
        if state["size"] > self.capacity:
            raise ValueError(f"{state['size']} stored frames do not fit into a buffer of {self.capacity}.")
        self.clear()
        if state["size"] == 0:
            return
        self.size, self._chains = state["size"], state["chains"]
        for name in _PER_FRAME:
            getattr(self, name)[: self.size] = state[name]
        for name in _STORES:
            setattr(self, name, trees.alloc_like(state[name], self.capacity))
            trees.put(getattr(self, name), slice(0, self.size), state[name])
        finals = trees.leading(state["final_obs"]) or 0
        self._finals = RowPool()
        self._finals.add(finals, state["final_obs"])
        self._finals.give_back(np.setdiff1d(np.arange(finals), self.final[: self.size]))

    def _slots(self, nodes: Sequence[tuple[int, str]]) -> np.ndarray:
        """Return the slots of nodes of this filling, -1 for any other."""
        ours = self.key
        return np.array([slot if key == ours else NONE for slot, key in nodes], np.int64)

    def _carried_over(self, nodes: Sequence[tuple[int, str]]) -> list[float]:
        before, carry = self._key_before, self._carry
        return [carry[slot] if key == before and slot < len(carry) else 0.0 for slot, key in nodes]

    def _link(self, into: slice, previous: np.ndarray) -> None:
        """Continue the chains of the frames before, and start chains where there is none."""
        continues = previous != NONE
        starts = np.flatnonzero(~continues)
        chain, depth = self.chain[into], self.depth[into]
        chain[continues] = self.chain[previous[continues]]
        depth[continues] = self.depth[previous[continues]] + 1
        chain[starts] = self._chains + np.arange(len(starts))
        depth[starts] = 0
        self._chains += len(starts)
        self.successor[previous[continues]] = np.arange(into.start, into.stop)[continues]
        # The successor's obs stands for the next observation from now on; a truncated frame's own is still needed.
        superseded = previous[continues & ~self.truncated[previous]]
        freed = self.final[superseded]
        self.final[superseded] = NONE
        self._finals.give_back(freed[freed != NONE])

    def _keep_finals(self, rows: np.ndarray, next_obs: Tree) -> None:
        """Keep the next observations of these rows of the message that is being added."""
        self.final[self.size + rows] = self._finals.add(len(rows), trees.take(next_obs, rows))


def flat(columns: np.ndarray, layout: np.ndarray) -> np.ndarray:
    """Return an array [T, E] that is laid out in columns as one value a frame: the inverse of `array[layout]`."""
    filled = layout != NONE
    values = np.empty(int(filled.sum()), columns.dtype)
    values[layout[filled]] = columns[filled]
    return values


def _key(filling: int) -> str:
    return f"rollout-{filling}"


_PER_FRAME = ("reward", "terminated", "truncated", "carried", "successor", "chain", "depth", "final")
_STORES = ("obs", "train_state")
