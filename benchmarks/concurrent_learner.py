"""SAC with its learner in a process of its own against SAC that acts and learns by turns, beside a real client.

Both runs are the same commands but for `--algo.concurrent`, and take the same updates for the same env steps. They are
timed over the rows of their metrics file, from the first to the last: start-up and the random first frames are outside,
and the updates that are still owed when the last frame has come are inside.

    python benchmarks/concurrent_learner.py --json results.json
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import measure
from rich.table import Table

LEAST_UPDATES = 400  # of a run: a learner of its own process may be some hundreds behind before its first row
CONTENDERS = {"alternating": "--algo.no-concurrent", "concurrent": "--algo.concurrent"}


@dataclass(frozen=True)
class Work:
    """What one run does."""

    env_id: str = "HalfCheetah-v5"
    family: str = "mujoco-v1"
    num_envs: int = 4
    learning_starts: int = 500
    updates: int = 2000
    updates_per_step: float = 1.0
    hidden: tuple[int, int] = (256, 256)
    batch_size: int = 256
    rows: int = 8  # of metrics

    @property
    def steps(self) -> int:
        """Env steps of the run."""
        return self.learning_starts + round(self.updates / self.updates_per_step)


@dataclass(frozen=True)
class Run:
    """What one run measured.

    An env step counts when the updates owed for it are taken: a learner of its own process is some steps behind when
    the time begins, and none when it ends.
    """

    contender: str
    updates: int
    seconds: float
    env_steps_per_second: float
    updates_per_second: float
    most_updates_behind: float

    @classmethod
    def of(cls, contender: str, rows: list[dict[str, float]], updates_per_step: float) -> Run:
        """From the first row of metrics to the last."""
        first, last = rows[0], rows[-1]
        updates, seconds = (round(last[key] - first[key], 3) for key in ("losses/updates", "time"))
        behind = max(row.get("time/updates_behind", 0.0) for row in rows)
        rate = updates / seconds
        return cls(contender, int(updates), seconds, round(rate / updates_per_step, 1), round(rate, 1), behind)


# --- one run -------------------------------------------------------------------------------------


def command(contender: str, work: Work, seed: int, folder: Path) -> list[str]:
    """The command line of one run."""
    client = f"plugrl-run-env-client {work.family} --env.name {work.env_id} --num-envs {work.num_envs}"
    options = {
        "policy.hidden-sizes": " ".join(map(str, work.hidden)),
        "algo.global-steps": work.steps,
        "algo.learning-starts": work.learning_starts,
        "algo.batch-size": work.batch_size,
        "algo.updates-per-step": work.updates_per_step,
        "algo.report-interval": max(1, work.updates // work.rows),
        "checkpoint-base-dir": folder,
        "exp-name": "bench",
        "seed": seed,
        "port": 0,
    }
    server = str(Path(sys.executable).with_name("plugrl-run-server"))
    flags = [part for name, value in options.items() for part in (f"--{name}", *str(value).split())]
    names = ["sac-policy", "default", "sac", "default"]
    return [server, *names, *flags, "--policy.device", "cpu", CONTENDERS[contender], "--client", client]


def run(contender: str, work: Work, seed: int, timeout: float) -> Run:
    """One run of one contender.

    Raises:
        measure.BenchmarkError: It failed, or took another number of updates than are owed.
    """
    with tempfile.TemporaryDirectory() as folder:
        with measure.Process(command(contender, work, seed, Path(folder)), name=f"SAC, {contender}") as process:
            process.finish(timeout)
        (metrics,) = Path(folder).rglob("metrics.jsonl")
        rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    owed = int((rows[-1]["step"] - work.learning_starts) * work.updates_per_step) if rows else 0
    if len(rows) < 2 or rows[-1]["losses/updates"] != owed:
        raise measure.BenchmarkError(f"{contender}: expected {owed} updates in rows of metrics, got {rows[-1:]}")
    return Run.of(contender, rows, work.updates_per_step)


# --- the comparison ------------------------------------------------------------------------------


def compare(works: dict[str, Work], repeats: int, timeout: float) -> dict[str, list[Run]]:
    """All runs, interleaved: every repeat runs each contender once, starting with another one each time."""
    runs: dict[str, list[Run]] = {name: [] for name in works}
    with measure.progress() as bar:
        steps = measure.Steps(bar, repeats * len(works) * len(CONTENDERS))
        for repeat in range(repeats):
            for name, work in works.items():
                for contender in list(CONTENDERS) if repeat % 2 else list(reversed(CONTENDERS)):
                    steps.begin(f"{name}, repeat {repeat + 1}: {contender}")
                    runs[name].append(run(contender, work, repeat, timeout))
    return runs


def results(runs: dict[str, list[Run]]) -> dict[str, Any]:
    """Concurrent over alternating first, then the medians and every run."""
    of = {name: {c: [r for r in found if r.contender == c] for c in CONTENDERS} for name, found in runs.items()}

    def speeds(name: str, contender: str) -> list[float]:
        return [r.env_steps_per_second for r in of[name][contender]]

    return {
        **{
            f"concurrent_over_{n}": measure.median_ratio(speeds(n, "concurrent"), speeds(n, "alternating"))
            for n in runs
        },
        "median": {
            name: {
                contender: {
                    "env_steps_per_second": statistics.median(r.env_steps_per_second for r in found),
                    "updates_per_second": statistics.median(r.updates_per_second for r in found),
                    "most_updates_behind": statistics.median(r.most_updates_behind for r in found),
                }
                for contender, found in contenders.items()
            }
            for name, contenders in of.items()
        },
        "runs": {name: [asdict(r) for r in found] for name, found in runs.items()},
    }


def print_table(content: dict[str, Any]) -> None:
    """Env steps and updates per second, one line for each run."""
    table = Table("", "", "env steps/s", "updates/s", "most behind", title="SAC, one client")
    for name, contenders in content["median"].items():
        for contender, figures in contenders.items():
            table.add_row(name, contender, *(f"{value:.0f}" for value in figures.values()))
        table.add_row("", "ratio", f"{content[f'concurrent_over_{name}']:.2f}", "", "")
    measure.console.print(table)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(description="SAC: a learner of its own process against taking turns.")
    parser.add_argument("--updates", type=int, default=Work.updates, help="updates of each run")
    parser.add_argument(
        "--updates-per-step", type=float, action="append", help="updates for each env step (repeatable; default 1, 0.1)"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few updates, 1 repeat: to see that it works")
    measure.add_report_options(parser, time_limit=1800)
    args = parser.parse_args(argv)
    if args.quick:
        args.updates, args.repeats = LEAST_UPDATES, 1
    if args.updates < LEAST_UPDATES or args.repeats < 1 or any(rate <= 0 for rate in args.updates_per_step or ()):
        parser.error(f"--updates must be at least {LEAST_UPDATES}, --repeats at least 1, --updates-per-step above 0")
    return args


def main(argv: list[str] | None = None) -> int:
    """Compare and report."""
    args = parse(argv)
    rates = args.updates_per_step or [1.0, 0.1]
    works = {f"utd_{rate:g}": Work(updates=args.updates, updates_per_step=rate) for rate in rates}
    settings = {
        "repeats": args.repeats,
        "load_average_before": measure.load_average(),
        "work": {name: asdict(work) for name, work in works.items()},
        "commands": {
            name: {c: shlex.join(command(c, work, 0, Path("RUNS"))[1:]) for c in CONTENDERS}
            for name, work in works.items()
        },
    }
    return measure.carry_out(
        "concurrent_learner",
        args,
        settings,
        lambda: results(compare(works, args.repeats, timeout=600)),
        print_table,
    )


if __name__ == "__main__":
    measure.run_script(main)
