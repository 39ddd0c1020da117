"""`metrics.jsonl`: one JSON object per learn step, and what other modules read from it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any


def as_number(value: object) -> float | None:
    """`value` as a finite float; None when it is not one (JSON has no NaN, and a curve has no place for it)."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


class MetricsFile:
    """Appends rows `{"step", "time", <metric>: <number or null>}`, each on the disk before `log` returns.

    Args:
        path: The file.
        last_step: When a run is resumed: the checkpoint's step. Rows after it, and a torn last line, are dropped.
        clock: Unix time in seconds.
    """

    name = "metrics.jsonl"

    def __init__(self, path: Path, *, last_step: int | None = None, clock: Callable[[], float] = time.time):
        self._clock = clock
        if last_step is not None and path.exists():
            _keep_until(path, last_step)
        self._file = path.open("a", encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Writes one row."""
        row = {name: as_number(value) for name, value in metrics.items()}
        line = json.dumps({"step": step, "time": self._clock(), **row}, allow_nan=False)
        self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a metrics file in order; a torn line (the writer was killed) is skipped."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                yield row


def _keep_until(path: Path, last_step: int) -> None:
    draft = path.with_suffix(".new")
    with draft.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in read_rows(path) if row["step"] <= last_step)
    draft.replace(path)
