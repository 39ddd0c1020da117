"""When an env's steps happen, and what the time says about the answers it waits for."""

import math
from collections.abc import Callable

from plugrl_env_client.pacing.counts import PacingCounts
from plugrl_env_client.pacing.grid import Grid

DEADLINE_PERIODS = 3  # unless --runner.action-deadline is set
_ROUNDING = 1e-9  # of a period


class CaptureError(ValueError):
    """An env states a time of capture that cannot be one: the text is for whoever wrote it."""


class Pacer:
    """The clock of one env in real time.

    The *action deadline* counts from the moment at which an observation was captured to that at which the server's
    answer to it is there. Where an answer misses it, the env is given something else in every slot from then on, or is
    asked to hold. The first answer on a connection has no deadline: a server may have to warm up.

    Args:
        fps: steps a second.
        deadline: seconds; None: DEADLINE_PERIODS periods.
        now: the time in seconds, on a clock that does not go back.
        sleep: waits so many seconds.
        captured_at: when what the env shows was captured, on the clock of `now`, where the env knows; None where it
            does not: when `step` or the reset returned it.

    Attributes:
        deadline: in seconds.
        counts: what has been counted; the owner's thread writes it.
    """

    def __init__(
        self,
        fps: float,
        deadline: float | None,
        *,
        now: Callable[[], float],
        sleep: Callable[[float], None],
        captured_at: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._period = 1.0 / fps
        self.deadline = DEADLINE_PERIODS * self._period if deadline is None else deadline
        self.counts = PacingCounts()
        self._now = now
        self._captured_at = captured_at
        self._grid = Grid(self._period, now, sleep)
        self._captured = self._chosen_from = self._asked = now()
        self._new = self._first = True  # nothing was asked on this connection; what was asked is the first
        self._filled = 0  # slots that fill-ins took, or a stop, since the server was asked
        self._holding = False

    def connected(self) -> None:
        """There is a new connection: its first answer is a warm-up."""
        self._new = True
        self._grid.restart()

    def rested(self) -> None:
        """An episode has begun: the env shows what it sees now, and no step is due.

        Raises:
            CaptureError: as `stepped`.
        """
        self._captured = self._capture()
        self._grid.restart()

    def wait(self) -> None:
        """Sleep until the slot of a step that the server has chosen."""
        self._wait()
        if not self._first:
            self.counts.ages.add(self._now() - self._chosen_from)

    def stepped(self) -> None:
        """A step has returned what the env shows now.

        Raises:
            CaptureError: the env says that it was captured at no time, or more than a period from now.
        """
        self._captured = self._capture()

    def asked(self) -> None:
        """The server was sent what the env shows."""
        self._asked = self._now()
        self._chosen_from = self._captured
        self._first, self._new = self._new, False
        self._filled = 0
        self._holding = False

    def patience(self) -> float | None:
        """Seconds from now to the slot in which a fill-in is due; None: the answer is waited for."""
        if self._first or self._holding:
            return None
        return self._grid.until_slot(self._chosen_from + self.deadline)

    def wait_for_fill_in(self) -> None:
        """Sleep until the slot of a step that stands in for one which the server has not chosen in time."""
        self._wait()
        self._filled += 1
        self.counts.fill_ins += 1

    def stopped(self) -> None:
        """The env was asked to hold until the answer is there: no step is due meanwhile."""
        self._holding = True
        self._filled = max(self._filled, 1)
        self.counts.stops += 1
        self._grid.restart()

    def answered(self) -> int:
        """The answer is there.

        Returns:
            How many steps its chunk is to be shortened by: the periods from the deadline to now, begun ones included,
            so that it ends when it would have ended if the answer had come at the deadline. 0 for one in time.
        """
        now = self._now()
        over = (now - self._chosen_from - self.deadline) / self._period
        late = max(math.ceil(over - _ROUNDING), self._filled, 0)
        self.counts.answers += 1
        if self._first:
            self.counts.warm_up = max(self.counts.warm_up, now - self._asked)
        elif late:
            self.counts.late_answers += 1
        return late

    def _capture(self) -> float:
        now = self._now()
        told = self._captured_at()
        if told is None:
            return now
        if not (math.isfinite(told) and told <= now + self._period):
            raise CaptureError(f"captured_at {told}: expected seconds of time.monotonic(), which says {now}")
        return min(told, now)  # a camera's clock may be a little ahead

    def _wait(self) -> None:
        missed = self._grid.wait()
        self.counts.steps += 1
        self.counts.late_steps += missed > 0
        self.counts.missed_slots += missed
