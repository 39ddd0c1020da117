"""What passes from the rollouts to the writer: a bounded queue, and who must wait for whom."""

import collections
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np

from plugrl_env_client.recording.episode import ARRAY_BYTES, Rows

_HEAD = 1024  # bytes of an item that holds next to nothing: its tuples, its maps and its arrays of one number an env


class Begun(NamedTuple):
    """Episodes that have begun in k envs: int64[k] `envs`, int64[k] `numbers`, and their first observations."""

    envs: np.ndarray
    numbers: np.ndarray
    rows: Rows

    @property
    def nbytes(self) -> int:
        """Its size in the queue."""
        return self.rows.nbytes + _HEAD


class Stepped(NamedTuple):
    """One step of k envs: actions [k,*da], float64[k] rewards, bool[k] flags, and the observations after it.

    `success` is bool[k], or None where the envs do not say.
    """

    envs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    success: np.ndarray | None
    rows: Rows

    @property
    def nbytes(self) -> int:
        """Its size in the queue."""
        each = (self.envs, self.rewards, self.terminated, self.truncated)
        return self.rows.nbytes + self.actions.nbytes + ARRAY_BYTES + sum(array.nbytes for array in each) + _HEAD


class Abandoned(NamedTuple):
    """Episodes of some envs, int64[k], that will not be finished."""

    envs: np.ndarray

    @property
    def nbytes(self) -> int:
        """It takes no room: a full queue is when it must get through."""
        return 0


Item: TypeAlias = Begun | Stepped | Abandoned


class Intake:
    """A queue bounded in bytes between the rollouts' threads and the writer's.

    It also knows which envs have a finished episode that is not safe on disk yet.

    Args:
        limit: bytes that may wait. An item that is larger by itself is taken when nothing else waits.
        patience: seconds for which the writer may do nothing while somebody waits for it; None: for ever. Then it is
            given up, as one that is broken.
        work: a number that changes when the writer gets on with an item.
        stuck: told that the writer is given up.
    """

    def __init__(
        self,
        limit: int,
        *,
        patience: float | None = None,
        work: Callable[[], int] = lambda: 0,
        stuck: Callable[[], None] = lambda: None,
    ) -> None:
        self._limit = limit
        self._patience = patience
        self._work = work
        self._stuck = stuck
        self._taken = 0
        self._items: collections.deque[Item] = collections.deque()
        self._size = 0
        self._changed = threading.Condition()
        self._unsafe: set[int] = set()
        self._closed = False
        self._broken = False

    def put(self, item: Item, *, wait: bool) -> bool:
        """Hand an item over.

        Args:
            item: what has happened.
            wait: wait for room where there is none.

        Returns:
            False where there was no room. A broken writer takes everything and does nothing with it.
        """
        with self._changed:
            if not wait and not self._has_room(item):
                return False
            self._wait_until(lambda: self._has_room(item))
            if not self._broken:
                self._items.append(item)
                self._size += item.nbytes
                self._changed.notify_all()
            return True

    def ended(self, envs: Iterable[int]) -> None:
        """These envs have finished an episode, which must be made safe."""
        with self._changed:
            if not self._broken:
                self._unsafe.update(envs)

    def wait_until_safe(self, envs: Iterable[int]) -> None:
        """Wait until what these envs have finished is on disk, or will never be."""
        wanted = set(envs)
        with self._changed:
            self._wait_until(lambda: not self._unsafe & wanted)

    def take(self, *, wait: bool) -> Item | None:
        """The next item, or None: where nothing more will come, and with `wait` off where nothing is there."""
        with self._changed:
            while wait and not self._items and not self._closed:
                self._changed.wait()
            if not self._items:
                return None
            item = self._items.popleft()
            self._size -= item.nbytes
            self._taken += 1
            self._changed.notify_all()
            return item

    def safe(self, envs: Iterable[int]) -> None:
        """The finished episodes of these envs are on disk."""
        with self._changed:
            self._unsafe.difference_update(envs)
            self._changed.notify_all()

    def signs(self) -> tuple[int, int]:
        """Signs of life of the writer: they change when it gets on."""
        return self._taken, self._work()

    def close(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def breaks(self) -> None:
        """The writer cannot go on: nobody waits for it any more."""
        with self._changed:
            self._broken = True
            self._items.clear()
            self._size = 0
            self._unsafe.clear()
            self._changed.notify_all()

    def _wait_until(self, over: Callable[[], bool]) -> None:
        """Wait for the writer, for as long as it gets on."""
        while not over():
            before = self.signs()
            if not self._changed.wait_for(over, self._patience) and self.signs() == before:
                self._stuck()
                self.breaks()

    def _has_room(self, item: Item) -> bool:
        return self._broken or not self._items or not item.nbytes or self._size + item.nbytes <= self._limit
