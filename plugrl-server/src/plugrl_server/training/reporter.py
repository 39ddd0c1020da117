"""Passes what happens in a run on to the screen, to metrics.jsonl and to the trackers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plugrl_server.training.progress import COLLECTING, LEARNING, WAITING, Progress
from plugrl_server.training.trackers import Trackers

logger = logging.getLogger(__name__)


class Reporter:
    """The serving side's events (`serving.interface.RunEvents`).

    Args:
        progress: The screen.
        on_listening: Called with host and port once the socket is open.
        on_connections: Called after the number of connections changed.
    """

    def __init__(
        self, progress: Progress, on_listening: Callable[[str, int], None], on_connections: Callable[[], None]
    ):
        self.progress = progress
        self._on_listening, self._on_connections = on_listening, on_connections
        self._rows, self._curves = Trackers([]), Trackers([])

    def attach(self, rows: Trackers, curves: Trackers) -> None:
        """Sets where metrics go: `rows` takes one row for each learn step, `curves` takes every metric."""
        self._rows, self._curves = rows, curves

    def listening(self, host: str, port: int) -> None:
        """The socket is open."""
        self._on_listening(host, port)

    def connected(self, count: int) -> None:
        """A client came; `count` are connected now."""
        self.progress.connected(count)
        self._on_connections()

    def disconnected(self, count: int) -> None:
        """A client left; `count` are connected now."""
        self.progress.connected(count)
        self._on_connections()

    def stepped(self, global_step: int) -> None:
        """Feedback was recorded."""
        self.progress.stepped(global_step)

    def learning(self, started: bool) -> None:
        """A learn step started or ended."""
        logger.debug("learn step at step %d %s", self.progress.step, "begins" if started else "ends")
        after = COLLECTING if self.progress.connections else WAITING
        self.progress.enter(LEARNING if started else after)

    def learned(self, global_step: int, metrics: Mapping[str, float]) -> None:
        """A learn step ended with these metrics."""
        told = {**metrics, "time/steps_per_second": self.progress.rate}
        self._rows.log(global_step, told)
        self._curves.log(global_step, told)
        self.progress.learned(global_step, told)

    def concluded(self, global_step: int, metrics: Mapping[str, float]) -> None:
        """The run is over and measured this."""
        self._rows.log(global_step, metrics)
        self._curves.log(global_step, metrics)

    def logged(self, global_step: int, metrics: Mapping[str, Any]) -> None:
        """An algorithm's `feedback` returned metrics."""
        self._curves.log(global_step, metrics)

    def saved(self, path: Path) -> None:
        """A checkpoint was written."""
        logger.info("checkpoint saved: %s", path)

    def warned(self, text: str) -> None:
        """Something about the whole run deserves attention."""
        logger.warning("%s", text)

    def close(self) -> None:
        """Hands over what is buffered and leaves the last state on the screen."""
        self._rows.close()
        self._curves.close()
        self.progress.close()
