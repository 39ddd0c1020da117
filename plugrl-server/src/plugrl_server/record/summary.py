"""What a run prints about itself before it starts and after it ended."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LAST_ROWS = 10
"""Learn steps that the closing mean return is taken over."""


@dataclasses.dataclass(frozen=True)
class Closing:
    """What is known at the end of a run.

    Attributes:
        reason: Why it ended.
        error: What went wrong, or None.
        step: Decisions counted.
        seconds: How long it served.
        steps_done: Decisions of this process (fewer than `step` where it was resumed).
        accounting: What became of every feedback row, as text.
        folder: The run folder.
        saved: The last checkpoint, or None.
        rows: Rows of `metrics.jsonl`.
        resume: Words of the command that goes on with this run.
    """

    reason: str
    error: str | None
    step: int
    seconds: float
    steps_done: int
    accounting: str
    folder: Path
    saved: Path | None
    rows: Sequence[Mapping[str, Any]]
    resume: Sequence[str]

    def text(self) -> str:
        """The closing words."""
        rate = self.steps_done / self.seconds if self.seconds > 0 else 0.0
        lines = [f"{self.reason}: step {self.step:,}, {self.seconds:,.1f} s, {rate:,.0f} steps/s"]
        if self.error is not None:
            lines.append(f"error: {self.error}")
        mean = closing_return(self.rows)
        if mean is not None:
            lines.append(f"mean return of the last {LAST_ROWS} learn steps: {mean:.1f}")
        lines += [self.accounting, f"run folder: {self.folder}"]
        if self.saved is not None:
            lines.append(f"checkpoint: {self.saved}")
            lines.append(f'load it:    plugrl_server.load_policy("{self.folder}")')
            lines.append(f"resume it:  {shlex.join(self.resume)}")
        return "\n".join(lines)


def resume_command(command: Sequence[str], name: str, base: Path, repeated: Mapping[str, Sequence[str]]) -> list[str]:
    """Words of the command that goes on with a run.

    Args:
        command: The server's command and the four names.
        name: The run's own name.
        base: `--checkpoint-base-dir`.
        repeated: Values of the flags that have to be given again, by name.
    """
    words = [*command, "--resume", "--exp-name", name]
    if base != Path("checkpoints"):
        words += ["--checkpoint-base-dir", str(base)]
    for flag, values in repeated.items():
        words += [word for value in values for word in (f"--{flag}", value)]
    return words


def closing_return(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Mean of `rollout/reward` over the last learn steps that had one; None where none had."""
    values = [row["rollout/reward"] for row in rows if row.get("rollout/reward") is not None][-LAST_ROWS:]
    return sum(values) / len(values) if values else None


def configuration(title: str, values: Mapping[str, Any]) -> str:
    """One paragraph with every value: `policy gaussian-policy default: obs_dim=3, ...`."""
    return f"{title}: {', '.join(f'{name}={_shown(value)}' for name, value in values.items())}"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, Mapping):
        return f"({', '.join(f'{name}={_shown(item)}' for name, item in value.items())})"
    return repr(value) if isinstance(value, str) and (not value or " " in value) else str(value)
