"""Where every feedback row went: received = stored + discarded, by reason, for each connection and in total."""

from __future__ import annotations

from collections import Counter
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


class RowCount:
    """Feedback rows received, stored and discarded; every change is made to `total` too, where there is one."""

    def __init__(self, total: RowCount | None = None) -> None:
        self.received = 0
        self.stored = 0
        self.discarded: Counter[Discard] = Counter()
        self._total = total

    @property
    def pending(self) -> int:
        """Rows received whose fate is open."""
        return self.received - self.stored - self.discarded.total()

    def receive(self, rows: int) -> None:
        """Count rows that arrived."""
        self.received += rows
        if self._total is not None:
            self._total.receive(rows)

    def store(self, rows: int) -> None:
        """Count rows that the algorithm took."""
        self.stored += rows
        if self._total is not None:
            self._total.store(rows)

    def discard(self, reason: Discard, rows: int) -> None:
        """Count rows that were not stored."""
        if rows:
            self.discarded[reason] += rows
            if self._total is not None:
                self._total.discard(reason, rows)

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} {rows}" for reason, rows in sorted(self.discarded.items()))
        detail = f" ({reasons})" if reasons else ""
        return f"received {self.received} = stored {self.stored} + discarded {self.discarded.total()}{detail}"


class ConnectionCount(RowCount):
    """The rows of one connection.

    Attributes:
        name: Number and address, as in the log.
        ending: "open", "closed" (both close frames were exchanged: the count is the client's) or "cut".
    """

    def __init__(self, name: str, total: RowCount) -> None:
        super().__init__(total)
        self.name = name
        self.ending = "open"


class Accounting:
    """The rows of a run.

    Attributes:
        total: All connections together.
        connections: The connections that sent feedback, oldest first, the latest `KEPT_CONNECTIONS` of them.
    """

    def __init__(self) -> None:
        self.total = RowCount()
        self.connections: list[ConnectionCount] = []

    def open(self, name: str) -> ConnectionCount:
        """Begin to count for a connection."""
        return ConnectionCount(name, self.total)

    def close(self, count: ConnectionCount, *, handshake: bool) -> None:
        """End a connection's count; `handshake` tells whether both close frames were exchanged."""
        count.ending = "closed" if handshake else "cut"
        if count.received:
            self.connections.append(count)
            del self.connections[:-KEPT_CONNECTIONS]

    def finish(self) -> None:
        """End the run's account: rows whose fate is still open will not be stored any more."""
        for count in (*self.connections, self.total):
            count.discard(Discard.AFTER_CLOSE, count.pending)

    def table(self) -> str:
        """Return the account as lines of text: one for each connection that sent feedback, and the total."""
        rows = [(count.name, count.ending, str(count)) for count in self.connections]
        listed = sum(count.received for count in self.connections)
        if listed < self.total.received:
            rows.insert(0, ("earlier connections", "", f"received {self.total.received - listed}"))
        rows.append(("total", "", str(self.total)))
        name_width, ending_width = (max(len(row[i]) for row in rows) for i in (0, 1))
        lines = [f"  {name:<{name_width}}  {ending:<{ending_width}}  {text}" for name, ending, text in rows]
        return "\n".join(["feedback rows", *lines])
