"""One started client: a shell command in a process group of its own, its output in a log file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Set
from pathlib import Path

from plugrl_server.children.guard import Guard
from plugrl_server.children.peers import held_by, process_tree

TAIL_LINES = 20
_GATE = "read -r _ || exit 1\nexec </dev/null\n"  # run before a command: waits until the guard knows of it
_TAIL_BYTES = 64 * 1024


class Child:
    """A client process and everything it starts.

    Args:
        command: Shell command.
        log: File for its output, standard error included.
        guard: Ends it where the server cannot.

    Attributes:
        command: Shell command.
        log: File with its output.
        exit_code: Exit code, negative for the signal that ended it; None while it runs.
        has_connected: Whether a process of it has been seen with a connection to the server.
        forced: Whether it had to be ended.
        dismissed: Whether it was ended because the run is over and it had no part in it: no failure.
        refused: Why it could not be started, or None.
    """

    def __init__(self, command: str, log: Path, guard: Guard | None = None):
        self.command, self.log, self._guard = command, log, guard
        self.exit_code: int | None = None
        self.has_connected = False
        self.forced = False
        self.dismissed = False
        self.refused: str | None = None
        self._group: int | None = None
        self._early: signal.Signals | None = None

    async def run(self, environment: Mapping[str, str]) -> None:
        """Starts the command and waits until it has exited.

        Where the system cannot start it, `refused` says why and `exit_code` is the shell's 126.
        """
        try:
            process = await self._started(environment)
        except OSError as error:
            self.refused, self.exit_code = error.strerror or str(error), 126
            return
        if self._early is not None:
            self._signal(self._early)
        self.exit_code = await process.wait()
        self._forget_empty_group()

    @property
    def failed(self) -> bool:
        """Whether it exited non-zero or had to be ended, unless it was dismissed."""
        return not self.dismissed and (self.forced or self.exit_code not in (None, 0))

    def connections_among(self, sockets: Set[str]) -> int:
        """How many of these sockets its processes hold (`peers.Connections.clients`)."""
        if self._group is None or self.exit_code is not None:
            return 0
        return sum(len(held_by(pid) & sockets) for pid in process_tree(self._group))

    def dismiss(self) -> None:
        """Asks it to end, for which nobody is to blame."""
        self.dismissed = self.dismissed or self.exit_code is None
        self.end(signal.SIGTERM)

    def end(self, number: signal.Signals) -> None:
        """Sends a signal to the running command and everything it started, which then counts as forced."""
        if self.exit_code is None:
            self.forced = True
            self._early = number  # in case it is just being started
            self._signal(number)

    def sweep(self) -> None:
        """Kills whatever is left of the process group, also what an exited command left behind."""
        self._signal(signal.SIGKILL)

    def outcome(self) -> str:
        """How it ended, in words."""
        if self.refused is not None:
            return f"could not be started ({self.refused})"
        if self.exit_code is None:
            return "is still running"
        if self.dismissed:
            return "had not connected and was ended"
        if self.forced:
            return "did not exit by itself and was killed"
        if self.exit_code < 0:
            return f"was ended by {signal.Signals(-self.exit_code).name}"
        return f"exited with {self.exit_code}"

    def tail(self) -> list[str]:
        """The last lines of its output."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return []
        return text.splitlines()[-TAIL_LINES:]

    async def _started(self, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        gate, opened = os.pipe()
        try:
            with self.log.open("wb") as output:
                process = await asyncio.create_subprocess_shell(
                    _GATE + self.command,
                    stdin=gate,
                    stdout=output,
                    stderr=asyncio.subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
            self._group = process.pid
            if self._guard is not None:
                self._guard.begins(self._group)
            with contextlib.suppress(BrokenPipeError):  # somebody has ended it
                os.write(opened, b"\n")
        finally:  # a server that was killed closes the gate, too
            os.close(gate)
            os.close(opened)
        return process

    def _signal(self, number: int) -> None:
        if self._group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, number)

    def _forget_empty_group(self) -> None:
        # An empty group's number may come back as a stranger's, which must never be signalled.
        if self._group is not None:
            try:
                os.killpg(self._group, 0)
            except (ProcessLookupError, PermissionError):
                if self._guard is not None:
                    self._guard.over(self._group)
                self._group = None
