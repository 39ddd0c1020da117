"""What is counted of a paced run, for its summary."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from plugrl_env_client.pacing.ages import Ages


@dataclasses.dataclass
class PacingCounts:
    """How well the envs of one group, or of several together, kept time.

    Attributes:
        steps: env steps, fill-ins included.
        late_steps: those before which slots went by without a step.
        missed_slots: how many slots that were.
        answers: answers of the server.
        late_answers: those that came after the action deadline; the first one of a connection is never counted.
        fill_ins: steps that were run with an action of the client's own, because the answer was late.
        stops: how often the env was asked to hold, because the answer was late.
        warm_up: the longest that the first answer of a connection took, in seconds.
        ages: of the observation an action was chosen from, when the action was given to the env. Without the actions
            of the first answer of a connection.
    """

    steps: int = 0
    late_steps: int = 0
    missed_slots: int = 0
    answers: int = 0
    late_answers: int = 0
    fill_ins: int = 0
    stops: int = 0
    warm_up: float = 0.0
    ages: Ages = dataclasses.field(default_factory=Ages)

    def copy(self) -> "PacingCounts":
        """The counts as they stand; any thread may ask."""
        return dataclasses.replace(self, ages=self.ages.copy())

    def as_json(self) -> dict[str, Any]:
        """For summary.json."""
        counts: dict[str, Any] = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "ages"
        }
        counts["warm_up"] = round(self.warm_up, 4)
        counts["observation_age"] = {
            "p50": _rounded(self.ages.quantile(0.5)),
            "p95": _rounded(self.ages.quantile(0.95)),
            "max": _rounded(self.ages.longest if self.ages.bins else None),
        }
        return counts

    def __str__(self) -> str:
        steps = f"{self.late_steps:,} of {self.steps:,} steps late ({self.missed_slots:,} slots missed)"
        late = f"{self.late_answers:,} of {self.answers:,} answers late"
        parts = [steps, f"{late} ({self.fill_ins:,} fill-in steps, {self.stops:,} stops)"]
        middle, high = self.ages.quantile(0.5), self.ages.quantile(0.95)
        if middle is not None and high is not None:
            parts.append(f"observation age p50 {middle:.3f} s, p95 {high:.3f} s, max {self.ages.longest:.3f} s")
        return "; ".join(parts)


def all_paced(counts: Sequence[PacingCounts | None]) -> PacingCounts | None:
    """The counts of several groups together; None when none of them was paced."""
    paced = [each for each in counts if each is not None]
    if not paced:
        return None
    sums = {
        field.name: sum(getattr(each, field.name) for each in paced)
        for field in dataclasses.fields(PacingCounts)
        if field.name not in ("ages", "warm_up")
    }
    return PacingCounts(
        **sums, warm_up=max(each.warm_up for each in paced), ages=Ages.together(each.ages for each in paced)
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
