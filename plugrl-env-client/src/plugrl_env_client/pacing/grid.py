"""The times at which steps happen: a fixed grid, on which delays do not add up."""

import math
from collections.abc import Callable

SLACK = 0.25  # of a period: a step that is late by less than this happens at once, in its own slot
_ROUNDING = 1e-9  # of a period


class Grid:
    """Slots `period` seconds apart. Each step takes one, none takes a slot that is over.

    After a stall the steps go on with the next slot, without making up for those that were missed: two steps are never
    less than `1 - SLACK` of a period apart, and all of them lie on the grid, give or take the slack.

    Args:
        period: seconds from one slot to the next.
        now: the time in seconds, on a clock that does not go back.
        sleep: waits so many seconds.
    """

    def __init__(self, period: float, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._period = period
        self._now = now
        self._sleep = sleep
        self._start: float | None = None  # the time of slot 0; None: the next step is at once, and starts a grid
        self._last = 0  # the slot of the last step

    def restart(self) -> None:
        """The next step is not due at any time: what comes before it, a reset, takes as long as it takes."""
        self._start = None

    def wait(self) -> int:
        """Sleep until the slot of the next step.

        Returns:
            How many slots have gone by without a step since the last one: 0 for a step in time.
        """
        now = self._now()
        if self._start is None:
            self._start, self._last = now, 0
            return 0
        elapsed = (now - self._start) / self._period
        slot = max(self._last + 1, math.ceil(elapsed - SLACK - _ROUNDING))
        missed = slot - self._last - 1
        self._last = slot
        if slot > elapsed:
            self._sleep((slot - elapsed) * self._period)
        return missed

    def until_slot(self, time: float) -> float:
        """Seconds from now to the first free slot at `time`, give or take the slack, or after it; 0 when it is there.

        Without a grid: to `time`.
        """
        now = self._now()
        if self._start is None:
            return max(time - now, 0.0)
        slot = max(self._last + 1, math.ceil((time - self._start) / self._period - SLACK - _ROUNDING))
        return max(self._start + slot * self._period - now, 0.0)
