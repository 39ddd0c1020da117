"""The two programs as processes: started, read line by line, and surely gone at the end of a test."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

PLUGINS = Path(__file__).parent / "plugins"
SCRIPTS = Path(sys.executable).parent
SERVER = str(SCRIPTS / "plugrl-run-server")
CLIENT = str(SCRIPTS / "plugrl-run-env-client")
TIMEOUT = 60.0
COUNTED = re.compile(r"received (\d+) = stored (\d+) \+ discarded (\d+)(?: \((.+)\))?")


def environment(**extra):
    """This process's environment, without what would change a program's defaults, and with the test's plug-ins."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PLUGRL_")}
    return {**ours, "PYTHONPATH": str(PLUGINS), "COLUMNS": "200", **extra}


class Program:
    """One running program. Its output is read by a thread, so that no pipe ever fills."""

    def __init__(self, *argv, cwd):
        self.process = subprocess.Popen(
            [str(word) for word in argv],
            cwd=cwd,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines = []
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self):
        return "".join(self.lines)

    def wait_for(self, pattern):
        """The first match of a pattern in a line of the output; fails when the program ends without one."""
        with self._changed:
            found = []

            def seen():
                found[:] = [match for line in self.lines if (match := re.search(pattern, line))]
                return found or self._ended

            self._changed.wait_for(seen, timeout=TIMEOUT)
        assert found, f"no line matches {pattern!r}:\n{self.output}"
        return found[0]

    def wait(self):
        """The exit status, once the program has ended and all its output is read."""
        try:
            status = self.process.wait(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {TIMEOUT} s:\n{self.output}") from None
        self._reader.join(timeout=TIMEOUT)
        return status

    def interrupt(self):
        """What Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def end(self):
        """Kill whatever is left, children included."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(timeout=TIMEOUT)
        self.process.stdout.close()

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


@dataclasses.dataclass
class Rows:
    """One line of the accounting that a server prints."""

    received: int
    stored: int
    discarded: int
    reasons: dict[str, int]

    @classmethod
    def parse(cls, line):
        received, stored, discarded, reasons = COUNTED.search(line).groups()
        pairs = (part.rsplit(" ", 1) for part in (reasons or "").split(", ") if part)
        return cls(int(received), int(stored), int(discarded), {name: int(rows) for name, rows in pairs})


def account(output):
    """The accounting in a server's output: of each connection `(ending, rows)`, and the total."""
    connections, total = [], None
    for line in (line for line in output.splitlines() if COUNTED.search(line)):
        rows = Rows.parse(line)
        if line.split()[0] == "total":
            total = rows
        else:
            connections.append((re.search(r"\)\s+(\w+)\s+received", line)[1], rows))
    assert total is not None, output
    return connections, total


def sent(output):
    """How many rows of feedback a client says it sent, and how many of them are unconfirmed."""
    match = re.search(r"feedback: ([\d,]+) rows sent over .*?, ([\d,]+) unconfirmed", output)
    assert match, output
    return tuple(int(number.replace(",", "")) for number in match.groups())


def json_lines(path):
    """The objects of a file with one JSON object a line."""
    return [json.loads(line) for line in path.read_text().splitlines()]
