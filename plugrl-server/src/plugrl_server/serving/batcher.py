"""Which requests are answered together, and when. No clock, no sockets: the time is an argument."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from plugrl_server.learning import trees


@dataclasses.dataclass(slots=True, eq=False)
class Request:
    """One connection's wish for action chunks.

    Attributes:
        session: Who asks.
        env_indices: For which environments, i8[n].
        obs: Their observations as the policy reads them, a tree of leading n.
        layout: Requests of equal layout can share a batch.
        arrived: When it came, s.
    """

    session: Any
    env_indices: np.ndarray
    obs: dict[str, Any]
    layout: Hashable
    arrived: float


@dataclasses.dataclass(slots=True, eq=False)
class Batch:
    """Requests that are answered by one inference.

    Attributes:
        requests: In the order of their rows.
        obs: All their observations, a tree of leading `rows`.
        rows: Number of environments.
    """

    requests: list[Request]
    obs: dict[str, Any]
    rows: int

    def parts(self) -> Iterator[tuple[Request, slice]]:
        """Yield each request with its rows of the batch."""
        start = 0
        for request in self.requests:
            stop = start + len(request.env_indices)
            yield request, slice(start, stop)
            start = stop


class Batcher:
    """Collects requests by layout until a batch is due.

    Batching is continuous: whatever waits when the policy is free forms the next batch, unless it has fewer than
    `min_rows` environments and the oldest of it has waited for less than `max_wait`.

    Args:
        min_rows: Least number of environments in a batch.
        max_wait: Longest time a request waits for more of them, s: the bound that rules a deadlock out.
    """

    def __init__(self, min_rows: int = 1, max_wait: float = 0.0) -> None:
        self._min_rows = min_rows
        self._max_wait = max_wait
        self._waiting: dict[Hashable, list[Request]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def requests(self) -> list[Request]:
        """All that wait, those of one layout together."""
        return [request for requests in self._waiting.values() for request in requests]

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._waiting.setdefault(request.layout, []).append(request)

    def remove(self, session: object) -> None:
        """Forget the requests of a session that has gone."""
        left = [request for request in self.requests if request.session is not session]
        self._waiting.clear()
        for request in left:
            self.add(request)

    def deadline(self) -> float | None:
        """Return when the oldest request has waited long enough, None when none waits."""
        return min((requests[0].arrived + self._max_wait for requests in self._waiting.values()), default=None)

    def take(self, now: float, connections: int) -> Batch | None:
        """Return the due batch whose oldest request has waited longest, None when none is due.

        Args:
            now: The time, s.
            connections: How many connections there are: when all of them wait, there is nobody left to wait for.
        """
        if not self._waiting:
            return None
        due = [layout for layout, requests in self._waiting.items() if self._is_due(requests, now, connections)]
        if not due:
            return None
        return batch_of(self._waiting.pop(min(due, key=lambda layout: self._waiting[layout][0].arrived)))

    def _is_due(self, requests: list[Request], now: float, connections: int) -> bool:
        if now >= requests[0].arrived + self._max_wait or len(self) >= connections:
            return True
        return sum(len(request.env_indices) for request in requests) >= self._min_rows


def batch_of(requests: list[Request]) -> Batch:
    """Return one batch of requests of one layout, in this order."""
    if len(requests) == 1:
        return Batch(requests, requests[0].obs, len(requests[0].env_indices))
    rows = sum(len(request.env_indices) for request in requests)
    return Batch(requests, trees.concat([request.obs for request in requests]), rows)
