"""What a run measured: figures to print and to log, and a table of episodes."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

EPISODES_FILE = "episodes.csv"

Cell = str | int | float | bool | None


@dataclasses.dataclass(frozen=True)
class Results:
    """What an algorithm that measures something hands over at the end of a run.

    Attributes:
        lines: The figures as text.
        metrics: The figures by their slash names, for `metrics.jsonl` and the trackers.
        columns: Names of the table's columns.
        episodes: The table, one row for each episode.
    """

    lines: Sequence[str]
    metrics: Mapping[str, float]
    columns: Sequence[str]
    episodes: Sequence[Sequence[Cell]]

    def write(self, folder: Path) -> Path:
        """Write the table to `episodes.csv`, in one step, and return its path.

        What is unknown is an empty cell, a truth value 0 or 1, and a float has all its digits.
        """
        file, draft = folder / EPISODES_FILE, folder / f".{EPISODES_FILE}.new"
        with draft.open("w", encoding="utf-8", newline="") as table:
            writer = csv.writer(table, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows([int(cell) if isinstance(cell, bool) else cell for cell in row] for row in self.episodes)
        draft.replace(file)
        return file
