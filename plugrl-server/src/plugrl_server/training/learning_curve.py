"""`learning_curve.png`: the mean return, or where no episode ended the losses, over the steps of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RETURN = "rollout/reward"

Rows = Sequence[Mapping[str, Any]]


def draw(rows: Rows, file: Path, title: str) -> str:
    """Draws the curve; a failure to do so is no failure of the run.

    Args:
        rows: Rows of `metrics.jsonl`.
        file: The PNG to write.
        title: Name of the run.

    Returns:
        Where the curve is, or why there is none.
    """
    names = _curves(rows)
    if not names:
        return "no learning curve: no learn step reported a number"
    try:
        _draw(rows, names, file, title)
    except Exception as error:  # whatever the drawing library meets (fonts, a full disk), the training is done
        return f"no learning curve: {type(error).__name__}: {error}"
    return f"learning curve: {file}"


def _draw(rows: Rows, names: Sequence[str], file: Path, title: str) -> None:
    # Imported here because it takes a second and only the end of a run needs it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.0 + 3.2 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(len(names), sharex=True, squeeze=False)[:, 0], names, strict=True):
        steps, values = _points(rows, name)
        axes.plot(steps, values, marker="." if len(steps) < 50 else None)
        axes.set_ylabel("mean return" if name == RETURN else name)
        axes.grid(alpha=0.3)
    axes.set_xlabel("steps (decisions)")
    figure.suptitle(title)
    figure.savefig(file, dpi=110)


def _curves(rows: Rows) -> list[str]:
    names = sorted({name for row in rows for name, value in row.items() if "/" in name and value is not None})
    if RETURN in names:
        return [RETURN]
    return [name for name in names if name.startswith("losses/")][:4] or names[:4]


def _points(rows: Rows, name: str) -> tuple[list[int], list[float]]:
    found = [(int(row["step"]), float(row[name])) for row in rows if row.get(name) is not None]
    return [step for step, _ in found], [value for _, value in found]
