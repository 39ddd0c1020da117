"""A child's line to its parent: reports every second, log lines, and the news that the parent is gone."""

import contextlib
import dataclasses
import logging
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

from plugrl_env_client.client import Finished, Group
from plugrl_env_client.recording.counts import RecordingCounts
from plugrl_env_client.reporting.tally import Snapshot, together
from plugrl_env_client.supervision.messages import REPORT_SECONDS, Report, Said

ALONE_SECONDS = 15.0  # from the parent's death to ours: a close handshake takes 5


class Reporter:
    """Reports from a thread of its own, whatever the envs are doing.

    Args:
        pipe: to the parent. Where nobody reads it any more, the main thread gets a SIGTERM, and the process ends within
            ALONE_SECONDS.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._groups: list[Group] = []
        self._recorded: RecordingCounts | None = None
        self._writing = False
        self._over = threading.Event()

    def watch(self, group: Group) -> None:
        """This group's envs are made: it is part of the reports from now on."""
        self._groups.append(group)

    def recorded(self, snapshot: Snapshot) -> None:
        """So much has been recorded, which the groups do not know."""
        self._recorded = snapshot.recording

    def writing(self) -> None:
        """All has been run; what is recorded is still being written."""
        self._writing = True

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Report for the duration."""
        threading.Thread(target=self._report, name="reporter", daemon=True).start()
        try:
            yield
        finally:
            self._over.set()

    def finished(self, finished: Finished) -> None:
        """The last thing to be said."""
        self._over.set()
        self._send(finished)

    def log_handler(self) -> logging.Handler:
        """Sends every log line to the parent."""
        return _Relay(self)

    def say(self, level: int, text: str) -> None:
        """Send one log line."""
        self._send(Said(level, text))

    def _report(self) -> None:
        while not self._over.wait(REPORT_SECONDS):
            if not self._send(self._now()):
                self._end_alone()

    def _now(self) -> Report:
        groups = tuple(self._groups)
        snapshot = together([group.snapshot() for group in groups])
        vitals = tuple(group.vital() for group in groups)
        writing = self._writing or any(group.is_held_up for group in groups)
        return Report(dataclasses.replace(snapshot, recording=self._recorded), vitals, writing)

    def _send(self, message: Report | Said | Finished) -> bool:
        """Whether the parent can still read it."""
        try:
            with self._sending:
                self._pipe.send(message)
        except OSError:
            return False
        return True

    def _end_alone(self) -> None:
        main = threading.main_thread().ident
        if main is not None and not self._over.is_set():
            signal.pthread_kill(main, signal.SIGTERM)
        if not self._over.wait(ALONE_SECONDS):
            os.killpg(0, signal.SIGKILL)


class _Relay(logging.Handler):
    def __init__(self, reporter: Reporter) -> None:
        super().__init__()
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        """Send the line; the traceback, if there is one, stays in the child's own log."""
        self._reporter.say(record.levelno, record.getMessage())
