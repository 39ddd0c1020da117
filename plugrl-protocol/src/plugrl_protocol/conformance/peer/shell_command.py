"""A peer that the checker starts itself: a shell command, its process group and its output."""

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

_END_SECONDS = 5.0
_SHOWN_LINES = 40
_SHOWN_BYTES = 64 * 2**10


class ShellCommand:
    """Runs a command line in a shell, as the leader of a process group that `end` ends as a whole.

    Args:
        command: The command line; `{host}` and `{port}` in it stand for where to meet.
        host: The host to meet at.
        port: The port to meet at.

    Raises:
        OSError: No shell could be started.
    """

    def __init__(self, command: str, host: str, port: int) -> None:
        self.command = command.replace("{host}", host).replace("{port}", str(port))
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as this object
        self._process = subprocess.Popen(  # noqa: S602  # the command line is the user's own
            self.command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> "ShellCommand":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self._output.close()

    def poll(self) -> int | None:
        """The exit status; None: it still runs."""
        return self._process.poll()

    @property
    def ended(self) -> bool:
        """Whether it and every process that it started in its group have ended."""
        return not self._alive()

    def wait(self, timeout: float) -> int | None:
        """The exit status once it has ended; None: it did not within `timeout` seconds."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        """End every process of the group: by SIGTERM, and after a while by SIGKILL."""
        self._signal(signal.SIGTERM)
        until = time.monotonic() + _END_SECONDS
        while self._alive() and time.monotonic() < until:
            time.sleep(0.02)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def output(self) -> list[str]:
        """The last lines of what it has printed, on either stream."""
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - _SHOWN_BYTES))
        lines = self._output.read().decode(errors="replace").splitlines()[-_SHOWN_LINES:]
        return ["".join(char if char.isprintable() else "?" for char in line) for line in lines]

    def _alive(self) -> bool:
        self._process.poll()  # a leader that nobody waits for still counts as alive
        return self._signal(0) and not _all_zombies(self._process.pid)

    def _signal(self, number: int) -> bool:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def _all_zombies(group: int) -> bool:
    """Whether only dead processes are left of a group, which wait for a lazy init to reap them; known on Linux only."""
    states = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group = path.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # it has ended meanwhile
        if int(process_group) == group:
            states.add(state)
    return states <= {"Z", "X"} and Path("/proc/self/stat").exists()


def say_status(status: int) -> str:
    """`exit status 3`, or the signal that ended it."""
    return f"exit status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
