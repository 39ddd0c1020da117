"""The line that shows how a run is going: live in a terminal, a plain line now and then elsewhere, or nothing."""

import abc
import sys
import time

from plugrl_env_client.reporting.tally import Snapshot

LIVE_SECONDS = 0.25
PLAIN_SECONDS = 10.0


def describe(snapshot: Snapshot, steps_per_second: float) -> str:
    """One line: steps, rate, episodes, mean return of the last episodes, share of time spent waiting, reconnects."""
    parts = [f"{snapshot.steps:,} steps", f"{steps_per_second:,.0f} steps/s", f"{snapshot.episodes:,} episodes"]
    if snapshot.recent_return is not None:
        parts.append(f"mean return {snapshot.recent_return:.1f}")
    parts.append(f"waiting {snapshot.wait_share:.0%}")
    if snapshot.reconnects:
        parts.append(f"reconnects {snapshot.reconnects}")
    return ", ".join(parts)


class Progress(abc.ABC):
    """Shows snapshots of a run.

    Attributes:
        interval: seconds between two of them.
    """

    interval: float = PLAIN_SECONDS

    def __init__(self) -> None:
        self._last = (time.monotonic(), 0)

    def show(self, snapshot: Snapshot) -> None:
        """Show the counts as they stand."""
        now = time.monotonic()
        then, steps = self._last
        self._last = (now, snapshot.steps)
        self._write(describe(snapshot, (snapshot.steps - steps) / max(now - then, 1e-9)))

    def close(self) -> None:  # noqa: B027 - only the live line has something to give back
        """Nothing more will be shown."""

    @abc.abstractmethod
    def _write(self, line: str) -> None: ...


class _Silent(Progress):
    interval = float("inf")

    def _write(self, line: str) -> None:
        del line


class _Plain(Progress):
    def _write(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class _Live(Progress):
    interval = LIVE_SECONDS

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self._text = Text
        # No refresh thread: it would compete with the envs for the interpreter.
        self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
        self._live.start()

    def _write(self, line: str) -> None:
        self._live.update(self._text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def close(self) -> None:
        self._live.stop()


def make_progress(*, quiet: bool) -> Progress:
    """The kind of progress that suits standard error."""
    if quiet:
        return _Silent()
    return _Live() if sys.stderr.isatty() else _Plain()
