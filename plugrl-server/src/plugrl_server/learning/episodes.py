"""Metrics of finished episodes: what `rollout/*` says of one learn step."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

METRICS = {"r": "rollout/reward", "l": "rollout/length", "s": "rollout/success"}
"""Figure of `info["episode"]` -> metric."""


def is_finished_episode(info: Mapping[str, Any]) -> bool:
    """Return whether a done row ends a whole episode: `info["episode"]["mask"]`, true where it is absent."""
    episode = info.get("episode")
    if not isinstance(episode, Mapping):
        return True
    return bool(_scalar(episode.get("mask", True)))


def has_figures(info: Mapping[str, Any]) -> bool:
    """Return whether a done row ends a whole episode and tells at least one of its figures."""
    episode = info.get("episode")
    return isinstance(episode, Mapping) and not METRICS.keys().isdisjoint(episode) and is_finished_episode(info)


class EpisodeMetrics:
    """Means over the episodes that ended since the last `clear`.

    A metric without data is absent. Only where episodes ended and none of their figures reached the algorithm
    (a client that sends no `info["episode"]`) are all three 0.0, as the wire's clause 5.4 has it.

    Attributes:
        recorded: Episodes recorded since the start; `clear` leaves it alone.
    """

    def __init__(self) -> None:
        self.recorded = 0
        self._finished = 0
        self._figures: dict[str, list[float]] = {key: [] for key in METRICS}

    def record(self, episode: Mapping[str, Any]) -> None:
        """Take the figures of one finished episode: any of `r` (return), `l` (length), `s` (success), scalars.

        Figures that are no finite number are left out; an episode whose `mask` is false is left out altogether.
        """
        if not _scalar(episode.get("mask", True)):
            return
        self.recorded += 1
        for key, values in self._figures.items():
            if key in episode and math.isfinite(value := _scalar(episode[key])):
                values.append(value)

    def note_finished(self, count: int) -> None:
        """Count episodes that ended, whether or not their figures were recorded."""
        self._finished += count

    def metrics(self) -> dict[str, float]:
        """Return the means under their slash names; see the class for what is absent and what is 0.0."""
        if any(self._figures.values()):
            return {METRICS[key]: float(np.mean(values)) for key, values in self._figures.items() if values}
        return dict.fromkeys(METRICS.values(), 0.0) if self._finished else {}

    def clear(self) -> None:
        """Forget all episodes, after a learn step has reported them."""
        self._finished = 0
        for values in self._figures.values():
            values.clear()


def _scalar(value: Any) -> float:
    """Return a number of any kind, or an array of exactly one, as a float; NaN for anything else."""
    try:
        return float(np.asarray(value).item())
    except (TypeError, ValueError):
        return math.nan
