"""How long a wait may ask the socket again and again instead of sleeping until it has something (`--spin-us`)."""

import os
from collections.abc import Callable

AUTO_SECONDS = 500e-6
LOST_SECONDS = 300e-6  # between two questions: somebody else had this core meanwhile
REST_SECONDS = 1.0


class Spinning:
    """Grants time to spin.

    Waking a sleeping process costs about 100 us on a virtual machine, more than a small policy's inference.

    Args:
        longest: seconds to spin in every wait; 0 never spins. None grants AUTO_SECONDS while answers usually come
            within that time and nobody else wants this core.

    Attributes:
        adapts: whether it wants to hear how long answers take (`waited`).
    """

    def __init__(self, longest: "float | None") -> None:
        self.adapts = longest is None
        self._longest = longest if longest is not None else AUTO_SECONDS if spare_cores() else 0.0
        self._usual = self._longest
        self._resting_until = 0.0

    def granted(self, now: float) -> float:
        """How many seconds the wait that begins now may spin."""
        if self.adapts and (self._usual > self._longest or now < self._resting_until):
            return 0.0
        return self._longest

    def waited(self, seconds: float) -> None:
        """Note how long an answer took."""
        if self.adapts:
            self._usual += (min(seconds, 8 * self._longest) - self._usual) / 8

    def asked(self, before: float, now: float) -> None:
        """Note the times of two questions in a row: a gap between them tells of others who want this core."""
        if now - before > LOST_SECONDS:
            self._resting_until = now + REST_SECONDS


def spare_cores() -> bool:
    """Whether this process may use more than one core."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return usable > 1


yield_core: Callable[[], None] = getattr(os, "sched_yield", lambda: None)
"""Let whoever waits for this core run first; does nothing where the system has no such call."""
