"""Draw the curves of `results/` and write the tables of README.md, here and in each algorithm's folder, from them.

`--check` writes nothing and says whether the tables are fresh. They name the flags in which a run's variant was another
than it is now, so that a preset cannot be changed beside figures that it did not make.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from plugrl_server.algorithm.registration import list_algos
from rows import ROWS, Row

HERE = Path(__file__).parent
RESULTS, README = HERE / "results", HERE / "README.md"
ALGORITHMS = HERE.parents[1] / "plugrl-server/src/plugrl_server/algorithm"
BEGIN, END = "<!-- table: written by curves.py -->", "<!-- end of table -->"
HEADER = (
    "| row | algorithm | policy | environment | steps | seeds | our mean of the last 10 reports | per seed "
    "| to reach | published by others | wall time per run |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
)
OWN_HEADER = (
    "| row | variant | policy | environment | steps | by seed, from 0 | to reach |\n|---|---|---|---|---|---|---|\n"
)


def load(row_name: str, results: Path = RESULTS) -> list[dict[str, Any]]:
    """The kept runs of a row, in order of their seeds."""
    files = sorted((results / row_name).glob("seed*.json"), key=lambda file: int(file.stem[4:]))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def changed_since(row: Row, run: dict[str, Any]) -> str:
    """The flags in which a run differs from its row as it stands now, as that run had them; empty where none does."""
    uid, variant = row.algo.split()
    now = json.loads(json.dumps(dataclasses.asdict(list_algos()[uid][variant]()), default=str))
    then = (run.get("algorithm") or {}).get("config", {})
    set_by_row = {"global_steps", *(word[7:].replace("-", "_") for word in row.flags.split() if word[:7] == "--algo.")}
    changed = [name for name in now if name in then and name not in set_by_row and now[name] != then[name]]
    return ", ".join(f"{name} {then[name]}" for name in changed)


def remarks(row: Row, runs: list[dict[str, Any]]) -> str:
    """What sets runs apart from what the row says: ended early, or trained by a variant that was another then."""
    cut = [f"seed {run['seed']} stopped at {run['steps']:,}" for run in runs if not run["finished"]]
    of_flags: dict[str, list[str]] = {}
    for run in runs:
        of_flags.setdefault(changed_since(row, run), []).append(str(run["seed"]))
    older = [
        f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)} still with {flags}"
        for flags, seeds in of_flags.items()
        if flags
    ]
    return f" ({'; '.join(cut + older)})" if cut + older else ""


def table_line(name: str, row: Row, runs: list[dict[str, Any]]) -> str:
    """One line of the table."""
    finals = [run["final"] for run in runs if run["final"] is not None]
    reach = "-" if row.reach is None else f"{row.reach:g}"
    start = f"| `{name}` | {row.algo} | {row.policy} | {row.env} | {row.steps:,} | {len(runs)} of {row.seeds} |"
    if not finals:
        return f"{start} not run | | {reach} | {row.published} | |\n"
    mean = f"{statistics.fmean(finals):.1f}{remarks(row, runs)}"
    each = ", ".join(f"{final:.1f}" for final in finals)
    wall = ", ".join(f"{run['wall_seconds']:.0f}" for run in runs)
    return f"{start} {mean} | {each} | {reach} | {row.published} | {wall} s |\n"


def table(results: Path = RESULTS) -> str:
    """The whole table."""
    return HEADER + "".join(table_line(name, row, load(name, results)) for name, row in ROWS.items())


def own_table(algorithm: str, results: Path = RESULTS) -> str:
    """The rows of one algorithm that were run, for its own README."""
    lines = [OWN_HEADER]
    for name, row in ROWS.items():
        uid, variant = row.algo.split()
        runs = [run for run in load(name, results) if run["final"] is not None]
        if uid == algorithm and runs:
            finals = ", ".join(f"{run['final']:.1f}" for run in runs) + remarks(row, runs)
            reach = "-" if row.reach is None else f"{row.reach:g}"
            lines.append(f"| `{name}` | {variant} | {row.policy} | {row.env} | {row.steps:,} | {finals} | {reach} |\n")
    return "".join(lines)


def pages() -> dict[Path, str]:
    """Each file with a table, and the table that belongs there."""
    algorithms = sorted({row.algo.split()[0] for row in ROWS.values()})
    return {README: table(), **{ALGORITHMS / uid / "README.md": own_table(uid) for uid in algorithms}}


def with_table(text: str, content: str) -> str:
    """A page's text with the part between the two marks replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{content}{END}{after}"


def draw(name: str, row: Row, results: Path = RESULTS) -> None:
    """Draw a row's curves, one line a seed, into `results/<row>/curve.png`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for file in sorted((results / name).glob("seed*.csv")):
        with file.open(encoding="utf-8") as lines:
            points = [(int(point["step"]), float(point["reward"])) for point in csv.DictReader(lines)]
        axes.plot(*zip(*points, strict=True), label=file.stem, linewidth=1)
    if row.reach is not None:
        axes.axhline(row.reach, color="gray", linestyle="--", linewidth=1, label="to reach")
    axes.set(xlabel="steps (decisions)", ylabel="mean return", title=f"{row.algo}, {row.env}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(results / name / "curve.png", dpi=90)


def main(argv: list[str] | None = None) -> int:
    """Draw and write, or check."""
    parser = argparse.ArgumentParser(description="Curves and table of the learning results.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a table is out of date")
    args = parser.parse_args(argv)
    stale = 0
    for page, content in pages().items():
        text = page.read_text(encoding="utf-8")
        fresh = with_table(text, content)
        stale += fresh != text
        if not args.check:
            page.write_text(fresh, encoding="utf-8")
    if args.check:
        return int(stale > 0)
    for name, row in ROWS.items():
        if load(name):
            draw(name, row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
