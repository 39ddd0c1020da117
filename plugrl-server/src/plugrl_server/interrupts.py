"""The signals that stop a run: the first one cleanly, a second one at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

INTERRUPTED = 130
"""Exit code of a run that was stopped at once."""

LAST_RESORT = 5.0
"""Seconds after the second signal when the process ends, whatever it is doing."""


def stop_signals() -> list[signal.Signals]:
    """Return the signals that ask a program to stop; SIGHUP is none where it is ignored, as under nohup."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


class Interrupts:
    """Counts the signals of a run and has it stop.

    Args:
        cleanly: Called with the first signal's name; returns False when it is too late for a clean stop.
        at_once: Called with the name of a signal that finds no clean stop to begin.

    Attributes:
        count: How many signals have come.
    """

    def __init__(self, cleanly: Callable[[str], bool], at_once: Callable[[str], None]) -> None:
        self.count = 0
        self._cleanly, self._at_once = cleanly, at_once
        self._last_resort: threading.Timer | None = None

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handles the signals while the running event loop is inside; to be entered once."""
        loop, numbers = asyncio.get_running_loop(), stop_signals()
        for number in numbers:
            loop.add_signal_handler(number, self._signalled, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
            if self._last_resort is not None:
                self._last_resort.cancel()

    def _signalled(self, number: signal.Signals) -> None:
        self.count += 1
        if self.count == 1 and self._cleanly(number.name):
            return
        self._at_once(number.name)
        if self._last_resort is None:
            self._last_resort = threading.Timer(LAST_RESORT, os._exit, (INTERRUPTED,))
            self._last_resort.daemon = True
            self._last_resort.start()
