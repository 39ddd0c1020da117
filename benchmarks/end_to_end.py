"""PPO env steps per second, learning included: PlugRL over its wire against Stable-Baselines3 in one process.

Ours is what the README starts: `plugrl-run-server ... --client "plugrl-run-env-client ..."`, two processes and a
loopback WebSocket. Stable-Baselines3 runs with 1 and with 2 torch threads and the better one of each repeat counts.
Both sides are timed from the end of their first learn step to the end of their last, over the same number of steps:
start-up (imports, environments, first batch) is outside on both.

    python benchmarks/end_to_end.py --json results.json
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
from sb3_ppo import SETTINGS

Stamps = list[tuple[int, float]]  # (env steps, seconds) at the end of each learn step
OURS = "plugrl"
SB3 = {"sb3_1_thread": 1, "sb3_2_threads": 2}
CONTENDERS = (OURS, *SB3)


@dataclass(frozen=True)
class Task:
    """One environment, and how our two commands name it."""

    env_id: str
    family: str
    policy: str


@dataclass(frozen=True)
class Ours:
    """What is added to our two commands."""

    server_flags: str = ""
    client_flags: str = ""


TASKS = {
    "cartpole": Task("CartPole-v1", "classic-v1", "categorical-policy"),
    "halfcheetah": Task("HalfCheetah-v5", "mujoco-v1", "gaussian-policy"),
}


@dataclass(frozen=True)
class Run:
    """What one run measured."""

    contender: str
    repeat: int
    learn_steps: int
    env_steps: int
    seconds: float
    steps_per_second: float

    @classmethod
    def of(cls, contender: str, repeat: int, stamps: Stamps) -> Run:
        """From the first learn step's end to the last one's."""
        (first_step, first_time), (last_step, last_time) = stamps[0], stamps[-1]
        steps, seconds = last_step - first_step, last_time - first_time
        return cls(contender, repeat, len(stamps) - 1, steps, round(seconds, 3), round(steps / seconds, 1))


# --- the two sides -------------------------------------------------------------------------------


def run_sb3(task: Task, iterations: int, threads: int, seed: int, timeout: float) -> Stamps:
    """Stable-Baselines3, environments and learner in one process of its own."""
    script = Path(__file__).resolve().with_name("sb3_ppo.py")
    command = [sys.executable, "-W", "ignore", str(script), "--env", task.env_id]
    command += ["--iterations", str(iterations), "--threads", str(threads), "--seed", str(seed)]
    name = f"Stable-Baselines3 ({task.env_id}, {threads} torch threads)"
    with measure.Process(command, name=name) as process:
        output = process.finish(timeout)
    line = next(line for line in reversed(output.splitlines()) if line.startswith('{"stamps"'))
    return [(step, seconds) for step, seconds in json.loads(line)["stamps"]]


def run_plugrl(task: Task, iterations: int, seed: int, timeout: float, ours: Ours) -> Stamps:
    """Our server, which starts our env client; the stamps are those of its metrics file."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"PlugRL ({task.env_id})"
        command = plugrl_command(task, iterations, seed, Path(folder), ours)
        with measure.Process(command, name=name) as process:
            process.finish(timeout)
        (metrics,) = Path(folder).rglob("metrics.jsonl")
        lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    return [(line["step"], line["time"]) for line in lines]


def plugrl_command(task: Task, iterations: int, seed: int, folder: Path, ours: Ours) -> list[str]:
    """The command line of one run of ours; every hyper-parameter is spelled out."""
    s = SETTINGS
    client = f"plugrl-run-env-client {task.family} --env.name {task.env_id} --num-envs {s.num_envs} {ours.client_flags}"
    options = {
        "algo.global-steps": iterations * s.buffer_size,
        "algo.buffer-size": s.buffer_size,
        "algo.batch-size": s.batch_size,
        "algo.update-epochs": s.update_epochs,
        "algo.learning-rate": s.learning_rate,
        "algo.adam-eps": s.adam_eps,
        "algo.gamma": s.gamma,
        "algo.gae-lambda": s.gae_lambda,
        "algo.clip-coef": s.clip_coef,
        "algo.ent-coef": s.ent_coef,
        "algo.vf-coef": s.vf_coef,
        "algo.max-grad-norm": s.max_grad_norm,
        "checkpoint-base-dir": folder,
        "exp-name": "bench",
        "seed": seed,
        "port": 0,
        "client": client.strip(),
    }
    server = str(Path(sys.executable).with_name("plugrl-run-server"))
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    names = [task.policy, "default", "ppo", "default"]
    return [server, *names, *flags, "--policy.device", "cpu", *shlex.split(ours.server_flags)]


def run(contender: str, task: Task, iterations: int, seed: int, timeout: float, ours: Ours) -> Stamps:
    """One run of one side.

    Raises:
        measure.BenchmarkError: it failed, or learnt another number of times than asked.
    """
    if contender == OURS:
        stamps = run_plugrl(task, iterations, seed, timeout, ours)
    else:
        stamps = run_sb3(task, iterations, SB3[contender], seed, timeout)
    expected = [SETTINGS.buffer_size * (i + 1) for i in range(iterations)]
    if [step for step, _ in stamps] != expected:
        raise measure.BenchmarkError(f"{contender}: expected learn steps at {expected}, got {stamps}")
    return stamps


# --- the comparison ------------------------------------------------------------------------------


def compare(tasks: dict[str, Task], iterations: int, repeats: int, timeout: float, ours: Ours) -> dict[str, list[Run]]:
    """All runs, interleaved: every repeat runs each side once, starting with another one each time."""
    runs: dict[str, list[Run]] = {name: [] for name in tasks}
    with measure.progress() as bar:
        steps = measure.Steps(bar, repeats * len(tasks) * len(CONTENDERS))
        for repeat in range(repeats):
            for name, task in tasks.items():
                for i in range(len(CONTENDERS)):
                    contender = CONTENDERS[(repeat + i) % len(CONTENDERS)]
                    steps.begin(f"{task.env_id}, repeat {repeat + 1}: {contender}")
                    stamps = run(contender, task, iterations, repeat, timeout, ours)
                    found = Run.of(contender, repeat, stamps)
                    runs[name].append(found)
                    bar.console.print(f"{task.env_id:15} {contender:14} {found.steps_per_second:8.0f} env steps/s")
    return runs


def ratio(runs: list[Run]) -> float:
    """Ours over the better Stable-Baselines3 of the same repeat, median of the repeats."""
    ours = {r.repeat: r.steps_per_second for r in runs if r.contender == OURS}
    theirs = {
        repeat: max(r.steps_per_second for r in runs if r.contender in SB3 and r.repeat == repeat) for repeat in ours
    }
    return measure.median_ratio(list(ours.values()), list(theirs.values()))


def results(runs: dict[str, list[Run]]) -> dict[str, Any]:
    """The ratios first, then the medians and every run."""
    medians = {
        name: {c: statistics.median(r.steps_per_second for r in found if r.contender == c) for c in CONTENDERS}
        for name, found in runs.items()
    }
    return {
        **{f"ratio_{name}": ratio(found) for name, found in runs.items()},
        "median_steps_per_second": medians,
        "runs": {name: [asdict(r) for r in found] for name, found in runs.items()},
    }


def print_table(content: dict[str, Any]) -> None:
    """Env steps per second and the ratio, one line for each environment."""
    table = Table("environment", *CONTENDERS, "ours / better SB3", title="PPO env steps per second, learning included")
    for name, medians in content["median_steps_per_second"].items():
        table.add_row(name, *(f"{medians[c]:.0f}" for c in CONTENDERS), f"{content[f'ratio_{name}']:.2f}")
    measure.console.print(table)


def main(argv: list[str] | None = None) -> int:
    """Compare and report."""
    parser = argparse.ArgumentParser(description="PPO env steps per second: PlugRL against Stable-Baselines3.")
    parser.add_argument("--env", choices=TASKS, action="append", help="only this one (repeatable; default both)")
    parser.add_argument("--iterations", type=int, default=15, help="learn steps of each run; the first is not timed")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="4 learn steps, 1 repeat: to see that it works")
    parser.add_argument("--server-flags", default="", metavar="FLAGS", help="added to our server's command")
    parser.add_argument("--client-flags", default="", metavar="FLAGS", help="added to our client's command")
    measure.add_report_options(parser, time_limit=3600)
    args = parser.parse_args(argv)
    iterations, repeats = (4, 1) if args.quick else (args.iterations, args.repeats)
    if iterations < 2 or repeats < 1:
        parser.error("--iterations must be at least 2 and --repeats at least 1")
    tasks = {name: TASKS[name] for name in args.env or TASKS}
    ours = Ours(args.server_flags, args.client_flags)
    settings = {"iterations": iterations, "repeats": repeats, "seeds": list(range(repeats)), **asdict(SETTINGS)}
    settings["load_average_before"] = measure.load_average()
    settings["commands"] = {
        name: shlex.join(plugrl_command(task, iterations, 0, Path("RUNS"), ours)[1:]) for name, task in tasks.items()
    }
    return measure.carry_out(
        "end_to_end",
        args,
        settings,
        lambda: results(compare(tasks, iterations, repeats, 600, ours)),
        print_table,
    )


if __name__ == "__main__":
    measure.run_script(main)
