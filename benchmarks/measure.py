"""What every benchmark here needs: processes that always end, statistics, a script's frame, and a JSON report.

Nothing in this module knows what is being measured.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PACKAGES = (
    "plugrl-protocol", "plugrl-server", "plugrl-env-client", "websockets", "msgpack", "numpy",
    "gymnasium", "mujoco", "torch", "stable-baselines3",
)  # fmt: skip
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

console = Console(stderr=True)


class BenchmarkError(RuntimeError):
    """A benchmark could not be carried out; the text is for the person who started it."""


# --- processes ---------------------------------------------------------------------------------


class Process:
    """One program in a session of its own, its output in a temporary file; ended when the block is left.

    Only the process started here and what it started itself are ever signalled.

    Args:
        command: the program and its arguments.
        name: what to call it in messages.
        environment: variables added to the current ones.
    """

    def __init__(self, command: Sequence[str], *, name: str, environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The id of the process, which is also that of its group."""
        return self._process.pid

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._output.close()

    def output(self) -> str:
        """Everything the process has printed until now."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode(errors="replace")

    def wait_for(self, pattern: str, timeout: float) -> re.Match[str]:
        """Wait until the output holds `pattern`.

        Raises:
            BenchmarkError: the process ended or the time ran out first.
        """
        deadline = time.monotonic() + timeout
        while not (match := re.search(pattern, self.output())):
            if self._process.poll() is not None:
                raise BenchmarkError(f"{self.name} ended with {self._process.returncode}:\n{self._last_lines()}")
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{self.name} did not get ready within {timeout:g} s:\n{self._last_lines()}")
            time.sleep(0.02)
        return match

    def finish(self, timeout: float) -> str:
        """Wait for a successful end; returns the output.

        Raises:
            BenchmarkError: it exited non-zero or the time ran out.
        """
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"{self.name} took over {timeout:g} s:\n{self._last_lines()}") from None
        if code:
            raise BenchmarkError(f"{self.name} exited with {code}:\n{self._last_lines()}")
        return self.output()

    def stop(self, grace: float = 10.0) -> None:
        """End the process: SIGTERM, `grace` seconds, then SIGKILL for whatever is left of its group."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def cpu_ns(self) -> int | None:
        """Processor time that all threads of the process have used, in nanoseconds; None where the system won't say."""
        try:
            threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
            return sum(int(thread.read_text().split()[0]) for thread in threads) or None
        except OSError:
            return None

    def _last_lines(self) -> str:
        return "\n".join(self.output().splitlines()[-20:])


@contextlib.contextmanager
def bounded(seconds: int) -> Iterator[None]:
    """Leave the block with an error after `seconds`, or on SIGTERM, so that every process inside is ended."""

    def out_of_time(_signal: int, _frame: FrameType | None) -> None:
        raise BenchmarkError(f"stopped: took over {seconds} s (see --time-limit)")

    def terminated(_signal: int, _frame: FrameType | None) -> None:
        raise BenchmarkError("stopped: SIGTERM")

    before = signal.signal(signal.SIGALRM, out_of_time), signal.signal(signal.SIGTERM, terminated)
    alarm_before = signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(alarm_before)
        signal.signal(signal.SIGALRM, before[0])
        signal.signal(signal.SIGTERM, before[1])


def progress() -> Progress:
    """A progress bar on stderr that draws only when told to: a drawing thread would disturb what is measured."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=console, auto_refresh=False)


class Steps:
    """Shows which step of how many is under way."""

    def __init__(self, bar: Progress, total: int) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=total)
        self._begun = 0

    def begin(self, description: str) -> None:
        """The steps before this one are done."""
        self._bar.update(self._task, description=description, completed=self._begun, refresh=True)
        self._begun += 1


# --- statistics --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Durations:
    """How long each of `count` repetitions took, in microseconds."""

    count: int
    mean: float
    p50: float
    p99: float

    @classmethod
    def of(cls, stamps_ns: np.ndarray) -> Durations:
        """Durations between consecutive stamps.

        Args:
            stamps_ns: int64 [count + 1] of a monotonic clock, in nanoseconds.
        """
        each = np.diff(stamps_ns) / 1e3
        p50, p99 = np.percentile(each, [50, 99])
        return cls(len(each), float(each.mean()), float(p50), float(p99))

    @classmethod
    def median_of(cls, rounds: Sequence[Durations]) -> Durations:
        """The median of each figure over several rounds; `count` is their sum."""
        figures = np.median([[r.mean, r.p50, r.p99] for r in rounds], axis=0)
        return cls(sum(r.count for r in rounds), *(float(x) for x in figures))

    def to_json(self) -> dict[str, float]:
        """The figures with their unit in the key."""
        return {
            "exchanges": self.count,
            "per_second": round(1e6 / self.mean, 1),
            "mean_us": round(self.mean, 2),
            "p50_us": round(self.p50, 2),
            "p99_us": round(self.p99, 2),
        }


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The median over the rounds of numerator/denominator of the same round.

    Both of a round are measured seconds apart, so what slows the machine for a while slows both.
    """
    pairs = zip(numerators, denominators, strict=True)
    return round(float(np.median([a / b for a, b in pairs])), 3)


# --- scripts -----------------------------------------------------------------------------------


def add_report_options(parser: argparse.ArgumentParser, *, time_limit: int) -> None:
    """Add the options that every benchmark here has; `carry_out` reads them."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here")
    parser.add_argument("--time-limit", type=int, default=time_limit, metavar="SECONDS")


def carry_out(
    benchmark: str,
    args: argparse.Namespace,
    settings: Mapping[str, Any],
    find_results: Callable[[], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
) -> int:
    """Find the results within the time limit, show them, and write the report; returns the exit code.

    A `BenchmarkError` is told without a traceback.
    """
    try:
        with bounded(args.time_limit):
            found = find_results()
    except BenchmarkError as error:
        console.print(f"[red]error:[/] {escape(str(error))}", highlight=False)
        return 1
    show(found)
    if args.json:
        write_json(args.json, report(benchmark, settings, found))
    return 0


def run_script(main: Callable[[], int]) -> NoReturn:
    """End with the exit code of `main`, or with 130 where it was interrupted."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)


# --- reports -----------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """What a reader needs to judge figures from this computer: processors, load, versions, thread settings."""
    return {
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": load_average(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": _versions(),
        "thread_variables": {name: os.environ.get(name) for name in THREAD_VARIABLES},
    }


def load_average() -> float:
    """Processes that ran or wanted to, mean of the last minute: what else was going on before a benchmark."""
    return round(os.getloadavg()[0], 2)


def report(benchmark: str, settings: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    """One report: `results` are merged in at the top level, where a reader looks for the figures."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"benchmark": benchmark, "time": now, **results, "settings": dict(settings), "machine": machine()}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` to `path`; a NaN or an infinity is an error, not a broken file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
