"""Where every feedback row went: received = stored + discarded, by reason, for each connection and in total."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Mapping
from enum import StrEnum

KEPT_CONNECTIONS = 1000
"""Connections listed one by one; older ones are in the total only, so that a long run's memory stays bounded."""


class Discard(StrEnum):
    """Why a row was not stored."""

    STALE = "stale"
    """An earlier policy version acted, and the algorithm is on-policy."""
    LEARNING = "learning"
    """The algorithm had its fill and waits to learn."""
    NO_STEP_STATE = "no_step_state"
    """No action of this connection led to it: a duplicate, a replay, or an env that holds none (SPEC 7.6)."""
    NOT_FINITE = "not_finite"
    """A reward or an observation was NaN or infinite."""
    MALFORMED = "malformed"
    """Its message broke the protocol."""
    AFTER_CLOSE = "after_close"
    """It crossed the server's close frame, or was not handled before the run ended."""


@dataclasses.dataclass(eq=False)
class RowCount:
    """Feedback rows.

    Attributes:
        received: All that arrived.
        stored: Those that the algorithm took.
        discarded: The others, by reason.
    """

    received: int = 0
    stored: int = 0
    discarded: Counter[Discard] = dataclasses.field(default_factory=Counter)

    @property
    def pending(self) -> int:
        """Rows received whose fate is open."""
        return self.received - self.stored - self.discarded.total()

    def receive(self, rows: int) -> None:
        """Count rows that arrived."""
        self.received += rows

    def settle(self, rows: int, discarded: Mapping[Discard, int]) -> None:
        """Count the fate of rows that arrived: discarded for these reasons, and the others stored."""
        self.stored += rows
        for reason, count in discarded.items():
            self.stored -= count
            self.discarded[reason] += count

    def discard(self, reason: Discard, rows: int) -> None:
        """Count rows that arrived and were not stored."""
        if rows:
            self.discarded[reason] += rows

    def add(self, other: RowCount) -> None:
        """Add another count to this one."""
        self.received += other.received
        self.stored += other.stored
        self.discarded.update(other.discarded)

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} {rows}" for reason, rows in sorted(self.discarded.items()))
        detail = f" ({reasons})" if reasons else ""
        return f"received {self.received} = stored {self.stored} + discarded {self.discarded.total()}{detail}"


@dataclasses.dataclass(eq=False)
class ConnectionCount(RowCount):
    """The rows of one connection.

    Attributes:
        name: Number and address, as in the log.
        ending: "open", "closed" (both close frames were exchanged: the count is the client's) or "cut".
    """

    name: str = ""
    ending: str = "open"


class Accounting:
    """The rows of a run, connection by connection."""

    def __init__(self) -> None:
        self._open: dict[ConnectionCount, None] = {}
        self._ended: deque[ConnectionCount] = deque()
        self._earlier = RowCount()

    @property
    def connections(self) -> list[ConnectionCount]:
        """The connections that sent feedback: the latest `KEPT_CONNECTIONS` that ended, then the open ones."""
        return [*self._ended, *(count for count in self._open if count.received)]

    @property
    def total(self) -> RowCount:
        """All connections together."""
        total = RowCount()
        for count in (self._earlier, *self._ended, *self._open):
            total.add(count)
        return total

    def open(self, name: str) -> ConnectionCount:
        """Begin to count for a connection."""
        count = ConnectionCount(name=name)
        self._open[count] = None
        return count

    def close(self, count: ConnectionCount, *, handshake: bool) -> None:
        """Note the end of a connection; `handshake` tells whether both close frames were exchanged."""
        count.ending = "closed" if handshake else "cut"
        self._open.pop(count, None)
        if count.received:
            self._ended.append(count)
        while len(self._ended) > KEPT_CONNECTIONS and not self._ended[0].pending:
            self._earlier.add(self._ended.popleft())

    def finish(self) -> None:
        """End the run's account: rows whose fate is still open will not be stored any more."""
        for count in (*self._ended, *self._open):
            count.discard(Discard.AFTER_CLOSE, count.pending)

    def table(self) -> str:
        """Return the account as lines of text: one for each connection that sent feedback, and the total."""
        rows = [(count.name, count.ending, str(count)) for count in self.connections]
        if self._earlier.received:
            rows.insert(0, ("earlier connections", "", str(self._earlier)))
        rows.append(("total", "", str(self.total)))
        name_width, ending_width = (max(len(row[i]) for row in rows) for i in (0, 1))
        lines = [f"  {name:<{name_width}}  {ending:<{ending_width}}  {text}" for name, ending, text in rows]
        return "\n".join(["feedback rows", *lines])
