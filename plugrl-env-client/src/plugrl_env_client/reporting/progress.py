"""How a run is going: live in a terminal, a plain line now and then elsewhere, or nothing."""

import abc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from plugrl_env_client.reporting.processes import ProcessStatus, total
from plugrl_env_client.reporting.tally import Snapshot

if TYPE_CHECKING:
    from rich.console import RenderableType

LIVE_SECONDS = 0.25
PLAIN_SECONDS = 10.0
_QUIET_STATES = ("running", "waiting")  # of which a plain line says nothing
_OTHER_LINES = 4  # of the live table: its head, what it leaves out, its sum, and the line that the cursor is in


def describe(snapshot: Snapshot, steps_per_second: float) -> str:
    """One line: steps, rate, episodes, mean return of the last episodes, share of time spent waiting, reconnects."""
    parts = [f"{snapshot.steps:,} steps", f"{steps_per_second:,.0f} steps/s", f"{snapshot.episodes:,} episodes"]
    if snapshot.recent_return is not None:
        parts.append(f"mean return {snapshot.recent_return:.1f}")
    parts.append(f"waiting {snapshot.wait_share:.0%}")
    if snapshot.reconnects:
        parts.append(f"reconnects {snapshot.reconnects}")
    return ", ".join(parts)


class Rates:
    """Env steps a second of each process, between the last two different counts that were seen of it."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, int, float]] = {}

    def of(self, process: ProcessStatus) -> float:
        """The rate now; 0 for a process that is not there."""
        seconds, steps = process.snapshot.seconds, process.snapshot.steps
        before, counted, rate = self._seen.get(process.index, (0.0, 0, 0.0))
        if seconds > before:
            rate = max(steps - counted, 0) / (seconds - before)
            self._seen[process.index] = (seconds, steps, rate)
        return rate if process.is_alive else 0.0


class Progress(abc.ABC):
    """Shows how the processes of a run are doing.

    Attributes:
        interval: seconds between two looks at them.
    """

    interval: float = PLAIN_SECONDS

    def __init__(self) -> None:
        self._rates = Rates()

    @abc.abstractmethod
    def show(self, processes: Sequence[ProcessStatus]) -> None:
        """Show them as they stand."""

    def close(self) -> None:  # noqa: B027 - only the live view has something to give back
        """Nothing more will be shown."""

    def _line(self, processes: Sequence[ProcessStatus]) -> str:
        return describe(total(processes), sum(self._rates.of(process) for process in processes))


class _Silent(Progress):
    interval = float("inf")

    def show(self, processes: Sequence[ProcessStatus]) -> None:
        """Show nothing."""


class _Plain(Progress):
    def show(self, processes: Sequence[ProcessStatus]) -> None:
        """Write the sum, and what is unusual."""
        unusual = [f"; process {p.index}: {p.state}" for p in processes if p.state not in _QUIET_STATES]
        sys.stderr.write(f"{self._line(processes)}{''.join(unusual if len(processes) > 1 else [])}\n")
        sys.stderr.flush()


class _Live(Progress):
    interval = LIVE_SECONDS

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live

        # No refresh thread: it would compete with the envs for the interpreter.
        self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
        self._live.start()

    def show(self, processes: Sequence[ProcessStatus]) -> None:
        """Draw a line for one process, a table for several."""
        self._live.update(self._table(processes) if len(processes) > 1 else self._text(processes), refresh=True)

    def close(self) -> None:
        """Give the terminal back."""
        self._live.stop()

    def _text(self, processes: Sequence[ProcessStatus]) -> "RenderableType":
        from rich.text import Text

        return Text(self._line(processes), no_wrap=True, overflow="ellipsis")

    def _table(self, processes: Sequence[ProcessStatus]) -> "RenderableType":
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("proc", "envs", "steps/s", "steps", "episodes", "return", "wait", "reconn"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("state")  # the one that gives way on a narrow terminal
        rates = [self._rates.of(process) for process in processes]
        room = max(self._live.console.height - _OTHER_LINES, 1)
        for process, rate in list(zip(processes, rates, strict=True))[:room]:
            state = Text(_state(process), no_wrap=True, overflow="ellipsis")
            table.add_row(f"{process.index}", process.envs, *_cells(process.snapshot, rate), state)
        if len(processes) > room:
            table.add_row("..", f"{len(processes) - room} more")
        together = total(processes)
        table.add_row("all", f"{len(together.env_steps)}", *_cells(together, sum(rates)), style="bold")
        return table


def _cells(snapshot: Snapshot, rate: float) -> tuple[str, ...]:
    mean = "" if snapshot.recent_return is None else f"{snapshot.recent_return:.1f}"
    waiting = f"{snapshot.wait_share:.0%}"
    return (f"{rate:,.0f}", f"{snapshot.steps:,}", f"{snapshot.episodes:,}", mean, waiting, f"{snapshot.reconnects:,}")


def _state(process: ProcessStatus) -> str:
    return process.state if process.restarts == 0 else f"{process.state} (restarted {process.restarts}x)"


def make_progress(*, quiet: bool) -> Progress:
    """The kind of progress that suits standard error."""
    if quiet:
        return _Silent()
    return _Live() if sys.stderr.isatty() else _Plain()
