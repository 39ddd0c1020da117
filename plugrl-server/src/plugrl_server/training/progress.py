"""What the user sees of a running training: a live panel on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from plugrl_server.training.metrics import as_number

WAITING, COLLECTING, LEARNING, SAVING, STOPPING = "waiting for client", "collecting", "learning", "saving", "stopping"

LINE_INTERVAL = 5.0
"""Seconds between two lines where there is no live panel."""

RATE_WINDOW = 20.0
"""Seconds that the shown rate looks back."""

RETURN = "rollout/reward"
_HEADLINE = ("rollout/", "losses/", "server/", "time/")


class Progress:
    """Numbers of a run and how they are shown.

    Args:
        console: Where to show them.
        title: Name of the run.
        total: Steps after which the run ends; None when it has no end.
        step: Steps done before (a resumed run).
        live: Draw a panel that updates itself; else print lines.
        metric_table: Print every metric after each learn step.
        figures: Number of episodes that finished, and the metrics of those since the last learn step.
        clock: Monotonic time in seconds.

    Attributes:
        step: Steps done so far.
        phase: What the server is doing.
        connections: Number of connected clients.
    """

    def __init__(
        self,
        console: Console,
        *,
        title: str,
        total: int | None,
        step: int = 0,
        live: bool = True,
        metric_table: bool = False,
        figures: Callable[[], tuple[int, Mapping[str, float]]] = lambda: (0, {}),
        clock: Callable[[], float] = time.monotonic,
    ):
        self.step, self.phase, self.connections = step, WAITING, 0
        self._figures = figures
        self._console, self._title, self._total, self._clock = console, title, total, clock
        self._metric_table = metric_table
        self._shown: dict[str, float] = {}
        self._samples = deque([(clock(), step)])
        self._first_step, self._began = step, clock()
        self._last_line, self._last_shown = clock(), (step, WAITING)
        self._live = Live(console=console, get_renderable=self.panel, refresh_per_second=2) if live else None

    def start(self) -> None:
        """Begins to draw."""
        if self._live is not None:
            self._live.start()

    def close(self) -> None:
        """Leaves the last state on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def rate(self) -> float:
        """Steps per second over the last `RATE_WINDOW` seconds; 0 before there is a measure."""
        (start, before), now = self._samples[0], self._clock()
        return (self.step - before) / (now - start) if now > start else 0.0

    @property
    def busy(self) -> float:
        """Seconds since the first step of this process (since the start, before it)."""
        return self._clock() - self._began

    @property
    def eta(self) -> float | None:
        """Seconds until the end at the present rate; None when unknown."""
        if self._total is None or self.rate <= 0:
            return None
        return max(self._total - self.step, 0) / self.rate

    def stepped(self, step: int) -> None:
        """The run got to `step`."""
        if self.step == self._first_step:  # the wait for the first client is no part of the rate
            self._began = self._clock()
            self._samples = deque([(self._began, step)])
        self.step = step
        self.tick()

    def enter(self, phase: str) -> None:
        """The server turned to something else."""
        self.phase = phase
        self.tick()

    def connected(self, count: int) -> None:
        """The number of connected clients changed."""
        self.connections = count
        if self.phase in (WAITING, COLLECTING):
            self.phase = COLLECTING if count else WAITING

    def learned(self, step: int, metrics: Mapping[str, float]) -> None:
        """A learn step ended with these metrics."""
        numbers = {name: as_number(value) for name, value in metrics.items()}
        self._shown.update({name: number for name, number in numbers.items() if number is not None})
        if self._metric_table:
            self.say(metric_table(step, numbers))
        self.stepped(step)

    def say(self, message: RenderableType) -> None:
        """Prints something above the panel."""
        self._console.print(message, markup=False, highlight=False, soft_wrap=isinstance(message, str))

    def panel(self) -> RenderableType:
        """The live panel."""
        bar = ProgressBar(total=self._total, completed=self.step, width=30, pulse=self._total is None)
        head = Table.grid(padding=(0, 2))
        head.add_row(Text(self._title, style="bold"), bar, Text(self._steps()), Text(self._speed()))
        return Group(head, Text(f"{self.phase} | {self._people()}"), Text(self._numbers(), style="dim"))

    def line(self) -> str:
        """The same in one line."""
        parts = (self.phase, self._steps(), self._speed(), self._people(), self._numbers())
        return " | ".join(part for part in parts if part)

    def tick(self) -> None:
        """Prints a line where one is due and something changed; called with every event and now and then between."""
        now = self._clock()
        if now - self._samples[-1][0] >= RATE_WINDOW / 40:
            self._samples.append((now, self.step))
            while len(self._samples) > 2 and now - self._samples[0][0] > RATE_WINDOW:
                self._samples.popleft()
        due = self._live is None and now - self._last_line >= LINE_INTERVAL
        if due and self._last_shown != (self.step, self.phase):
            self._last_line, self._last_shown = now, (self.step, self.phase)
            self.say(self.line())

    def _steps(self) -> str:
        if self._total is None:
            return f"step {self.step:,}"
        share = self.step / self._total if self._total else 1.0
        return f"step {self.step:,}/{self._total:,} ({share:.0%})"

    def _speed(self) -> str:
        eta = self.eta
        return f"{self.rate:,.0f} steps/s" + ("" if eta is None else f" | ETA {_duration(eta)}")

    def _people(self) -> str:
        clients = f"{self.connections} {'client' if self.connections == 1 else 'clients'}"
        episodes, current = self._figures()
        mean = self._shown.get(RETURN, current.get(RETURN))  # of the last learn step; where none was yet, of all so far
        return f"{clients} | {episodes:,} episodes" + ("" if mean is None else f" | mean return {mean:.1f}")

    def _numbers(self) -> str:
        losses = ((name, value) for name, value in self._shown.items() if name.startswith("losses/"))
        return "  ".join(f"{name.removeprefix('losses/')} {value:.4g}" for name, value in losses)


def metric_table(step: int, metrics: Mapping[str, float | None]) -> Table:
    """Every metric of a learn step, the well-known groups first."""
    table = Table(title=f"step {step:,}", show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    order = {prefix: place for place, prefix in enumerate(_HEADLINE)}
    for name in sorted(metrics, key=lambda name: (order.get(name.split("/")[0] + "/", len(order)), name)):
        value = metrics[name]
        table.add_row(Text(name), "not a number" if value is None else f"{value:.6g}")
    return table


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
