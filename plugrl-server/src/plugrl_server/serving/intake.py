"""In which order the run takes what its clients send: as it comes, or in rounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import groupby
from typing import Protocol

from plugrl_server.serving.batcher import Batch, Batcher, Request, batch_of
from plugrl_server.serving.connection.session import Report, Session


class Intake(Protocol):
    """Feedback and requests that wait for the algorithm."""

    def report(self, report: Report) -> None:
        """Queue a feedback."""
        ...

    def request(self, request: Request) -> None:
        """Queue a request."""
        ...

    def leave(self, session: Session) -> None:
        """Forget the requests of a session that has gone; its feedback still counts."""
        ...

    def next_report(self, live: Collection[Session]) -> Report | None:
        """Return the feedback to record next, None when there is none to record now."""
        ...

    def next_batch(self, now: float, live: Collection[Session]) -> Batch | None:
        """Return the batch to answer next, None when none is due. Asked only after all feedback is recorded."""
        ...

    def deadline(self) -> float | None:
        """Return the time at which a batch becomes due without anything else happening."""
        ...

    def drop(self) -> list[Report]:
        """Empty the queues and return the feedback that was never recorded."""
        ...


class Continuous:
    """Takes everything as it comes: feedback in arrival order, and whatever requests wait when the policy is free."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self._reports: deque[Report] = deque()

    def report(self, report: Report) -> None:
        """Queue a feedback."""
        self._reports.append(report)

    def request(self, request: Request) -> None:
        """Queue a request."""
        self._batcher.add(request)

    def leave(self, session: Session) -> None:
        """Forget the requests of a session that has gone."""
        self._batcher.remove(session)

    def next_report(self, live: Collection[Session]) -> Report | None:  # noqa: ARG002
        """Return the feedback that came first."""
        return self._reports.popleft() if self._reports else None

    def next_batch(self, now: float, live: Collection[Session]) -> Batch | None:
        """Return the batch that is due."""
        return self._batcher.take(now, len(live))

    def deadline(self) -> float | None:
        """Return when the oldest request has waited long enough."""
        return self._batcher.deadline()

    def drop(self) -> list[Report]:
        """Empty the queues."""
        dropped = list(self._reports)
        self._reports.clear()
        return dropped


class Rounds:
    """Takes everything in rounds, so that a run depends on its seeds only (`--deterministic`).

    A round begins when every live connection has a request waiting; its feedback has then arrived before. All feedback
    is recorded, then all requests are answered (in one batch, where their layouts agree), both in the order of the
    client numbers.

    Args:
        connections: How many connections the first round waits for.
    """

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self._begun = False
        self._arrived_reports: list[Report] = []
        self._arrived_requests: list[Request] = []
        self._reports: deque[Report] = deque()
        self._batches: deque[Batch] = deque()

    def report(self, report: Report) -> None:
        """Queue a feedback for the next round."""
        self._arrived_reports.append(report)

    def request(self, request: Request) -> None:
        """Queue a request for the next round."""
        self._arrived_requests.append(request)

    def leave(self, session: Session) -> None:
        """Forget the request of a session that has gone; the others go on without it."""
        self._arrived_requests = [request for request in self._arrived_requests if request.session is not session]

    def next_report(self, live: Collection[Session]) -> Report | None:
        """Return the next feedback of this round."""
        if not self._reports and not self._batches:
            self._begin(live)
        return self._reports.popleft() if self._reports else None

    def next_batch(self, now: float, live: Collection[Session]) -> Batch | None:  # noqa: ARG002
        """Return the next batch of this round."""
        return self._batches.popleft() if self._batches else None

    def deadline(self) -> float | None:
        """Rounds wait for clients, never for time."""
        return None

    def drop(self) -> list[Report]:
        """Empty the queues."""
        dropped = [*self._reports, *self._arrived_reports]
        self._reports.clear()
        self._arrived_reports.clear()
        return dropped

    def _begin(self, live: Collection[Session]) -> None:
        """Begin the next round, if all are ready for it."""
        if len(self._arrived_requests) < len(live) or not (self._begun or len(live) >= self._connections):
            return
        self._begun = True
        self._reports.extend(sorted(self._arrived_reports, key=lambda report: report.session.client_number))
        requests = sorted(self._arrived_requests, key=lambda request: (request.layout, request.session.client_number))
        self._batches.extend(batch_of(list(group)) for _, group in groupby(requests, lambda request: request.layout))
        self._arrived_reports.clear()
        self._arrived_requests.clear()
