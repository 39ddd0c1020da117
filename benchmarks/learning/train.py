"""Train rows of the results table over the real wire and keep what came out.

    python benchmarks/learning/train.py ppo-cartpole              # every seed of a row, one after the other
    python benchmarks/learning/train.py sac-halfcheetah --seed 0 --resume

Each run leaves `results/<row>/seed<k>.csv` (the curve) and `seed<k>.json` (command, versions, wall time, figures);
`curves.py` draws them and writes the table. A run that is stopped goes on with --resume; what it has until then is
kept too, with its step count.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rows import ROWS, Row

RESULTS = Path(__file__).parent / "results"
RUNS = Path("checkpoints") / "learning"
COLUMNS = {"reward": "rollout/reward", "length": "rollout/length"}
LAST = 10  # reports whose mean is the final figure
WHOLE = 0.97  # part of its steps that a whole run has learned from: what came after its last full buffer is not


def read_metrics(run_folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's `metrics.jsonl`; a line cut short is left out."""
    file, rows = run_folder / "metrics.jsonl", []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def with_returns(metrics: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The reports in which episodes ended."""
    return [row for row in metrics if row.get(COLUMNS["reward"]) is not None]


def figures(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float | int | None]:
    """Steps done, mean return of the last 10 reports, and the best mean of 10 reports in a row."""
    rewards = [float(row[COLUMNS["reward"]]) for row in with_returns(metrics)]
    means = [sum(rewards[i : i + LAST]) / LAST for i in range(len(rewards) - LAST + 1)]
    return {
        "steps": int(metrics[-1]["step"]) if metrics else 0,
        "final": round(sum(rewards[-LAST:]) / len(rewards[-LAST:]), 2) if rewards else None,
        "best": round(max(means), 2) if means else None,
    }


def keep(row_name: str, seed: int, run_folder: Path, session: Mapping[str, Any], results: Path = RESULTS) -> Path:
    """Write a run's curve and figures; wall seconds add up over the parts of a resumed run.

    Args:
        row_name: Key of `ROWS`.
        seed: The run's seed.
        run_folder: The server's run folder.
        session: What this part of the run was: `command`, `commit`, `wall_seconds`, `load_average`, `finished` and,
            where it went on with an earlier part, `resumed`.
        results: Where results are kept.
    """
    folder = results / row_name
    folder.mkdir(parents=True, exist_ok=True)
    metrics = read_metrics(run_folder)
    with (folder / f"seed{seed}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", *COLUMNS])
        writer.writerows([r["step"], *(r.get(name) for name in COLUMNS.values())] for r in with_returns(metrics))
    record = json.loads((run_folder / "config.json").read_text(encoding="utf-8"))
    into = folder / f"seed{seed}.json"
    before = json.loads(into.read_text(encoding="utf-8")) if session.get("resumed") and into.exists() else {}
    content = {
        "row": row_name,
        "seed": seed,
        **figures(metrics),
        "finished": session["finished"],
        "wall_seconds": round(before.get("wall_seconds", 0.0) + session["wall_seconds"], 1),
        "load_average": session["load_average"],
        "command": session["command"],
        "commit": session["commit"],
        "date": datetime.now(UTC).date().isoformat(),
        "versions": record.get("versions"),
        "algorithm": record.get("algorithm"),
        "policy": record.get("policy"),
    }
    into.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
    return into


def train(row_name: str, row: Row, seed: int, base: Path, *, resume: bool) -> int:
    """Run the server until it ends; returns its exit code.

    What is kept of a row stays as it is where the server did not learn, as when it refuses to start.
    """
    folder = row.run_folder(base, seed)
    going_on = resume and (folder / "config.json").exists()
    command = row.command(base, seed, resume=going_on)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    before, started = read_metrics(folder), time.monotonic()
    try:
        code = subprocess.run(command, env=environment, check=False).returncode
    except KeyboardInterrupt:  # the server, in the same process group, has saved and ended
        code = 130
    metrics = read_metrics(folder)
    if metrics != before:
        session = {
            "command": " ".join(_quoted(word) for word in command),
            "commit": _commit(),
            "wall_seconds": time.monotonic() - started,
            "load_average": round(os.getloadavg()[2], 2),
            "resumed": going_on,
            "finished": code == 0 and figures(metrics)["steps"] >= WHOLE * row.steps,
        }
        print(f"kept {keep(row_name, seed, folder, session)}")
    return code


def _quoted(word: str) -> str:
    return f'"{word}"' if " " in word else word


def _commit() -> str | None:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def pending(row: Row, seeds: Sequence[int] | None) -> Iterator[int]:
    """The seeds to train."""
    yield from range(row.seeds) if seeds is None else seeds


def main(argv: list[str] | None = None) -> int:
    """Train and keep."""
    parser = argparse.ArgumentParser(description="Train a row of the results table.")
    parser.add_argument("rows", nargs="+", choices=ROWS, metavar="row", help=", ".join(ROWS))
    parser.add_argument(
        "--seed", type=int, action="append", help="only this seed (repeatable; default: all of the row)"
    )
    parser.add_argument("--resume", action="store_true", help="go on with runs that were stopped")
    parser.add_argument("--runs", type=Path, default=RUNS, help=f"where run folders go (default {RUNS})")
    args = parser.parse_args(argv)
    for name in args.rows:
        for seed in pending(ROWS[name], args.seed):
            if code := train(name, ROWS[name], seed, args.runs, resume=args.resume):
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
