"""The reference peers as processes: how to start each, and what became of it."""

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from unittest import mock

EXAMPLES = Path(__file__).parents[2] / "examples"
CPP_SOURCE = EXAMPLES / "plugrl_client.cpp"
SECONDS = 30  # that any peer gets to end


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    status: int
    output: str


@dataclass(frozen=True)
class Client:
    """One of the two clients, by its command line."""

    name: str
    program: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, port: int, mode: str = "", host: str = "127.0.0.1", options: tuple[str, ...] = ()) -> list[str]:
        """The command line; `options` are those that both clients know."""
        if self.name == "raw_client":
            return [*self.program, "--host", host, "--port", str(port), *([mode] if mode else []), *options]
        return [*self.program, *([mode] if mode else []), host, str(port), *options]

    def start(self, port: int, mode: str = "", *options: str, host: str = "127.0.0.1") -> subprocess.Popen[str]:
        """The running client."""
        return start(self.command(port, mode, host, options), self.environment)

    def run(self, port: int, mode: str = "", *options: str, host: str = "127.0.0.1") -> Ended:
        """The client, run to its end."""
        if self.name == "raw_client":
            return self._run_here(self.command(port, mode, host, options)[len(self.program) :])
        return ended(self.start(port, mode, *options, host=host))

    def _run_here(self, arguments: list[str]) -> Ended:
        """The Python client without a process of its own, which would take half a second to start."""
        output = io.StringIO()
        with mock.patch.dict(os.environ, self.environment), contextlib.redirect_stderr(output):
            try:
                options = raw.parse(arguments)
                status = raw.Client(options, raw.make_slots(options)).run()
            except SystemExit as end:
                status = int(end.code or 0)
        return Ended(status, output.getvalue())

    def alone(self, *arguments: str) -> Ended:
        """The program with exactly these arguments."""
        return ended(start([*self.program, *arguments], self.environment))


def load(name: str) -> ModuleType:
    """An example as a module; its folder is on no path, as for whoever copies the file."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


raw = load("raw_client")


def raw_client() -> Client:
    """`raw_client.py`, with every warning an error."""
    return Client("raw_client", (sys.executable, "-W", "error", str(EXAMPLES / "raw_client.py")))


def start(command: list[str], environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """The running command; what it prints is for `ended`."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PLUGRL_")}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=inherited | (environment or {})
    )


def ended(process: subprocess.Popen[str]) -> Ended:
    """Wait for the end; a process that does not come to it is killed, and reported as -9."""
    with process:
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
    return Ended(process.returncode, output)


@dataclass
class Server:
    """A running `reference_server.py`."""

    process: subprocess.Popen[str]
    port: int

    def ended(self) -> Ended:
        """Wait for the run to end."""
        return ended(self.process)


@contextlib.contextmanager
def reference_server(*options: str) -> Iterator[Server]:
    """A reference server on a free port; terminated at the end, if it still runs."""
    process = start([sys.executable, "-W", "error", str(EXAMPLES / "reference_server.py"), "--port", "0", *options])
    assert process.stdout is not None
    line = process.stdout.readline()
    listening = re.search(r"listening on \S+ port (\d+)", line)
    try:
        assert listening, line + process.stdout.read()
        yield Server(process, int(listening[1]))
    finally:
        if process.poll() is None:
            process.terminate()
        if not process.stdout.closed:
            ended(process)
