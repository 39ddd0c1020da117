"""How sure a mean of a few episodes is: the percentile bootstrap (Efron 1979)."""

from __future__ import annotations

import dataclasses

import numpy as np

RESAMPLES = 10_000
"""Resamples of an interval: its ends are steady to about one part in a hundred of its width."""

AT_ONCE = 1_000_000
"""Numbers that are drawn in one piece, so that memory stays bounded whatever the number of episodes."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What n episodes say of one figure.

    Attributes:
        mean: Their mean.
        std: Their standard deviation, with n - 1 in the denominator; 0 for a single one.
        low: Lower end of the mean's interval.
        high: Upper end.
        count: n.
    """

    mean: float
    std: float
    low: float
    high: float
    count: int


def estimate(values: np.ndarray, *, level: float = 0.95, seed: int = 0) -> Estimate:
    """Return mean, deviation and the bootstrap interval of the mean.

    Args:
        values: f8[n], n of at least 1.
        level: Share of the resampled means that lie in the interval.
        seed: Of the resampling alone: the same values have the same interval.
    """
    values = np.asarray(values, np.float64)
    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    tail = 50 * (1 - level)
    low, high = np.percentile(resampled_means(values, seed), [tail, 100 - tail])
    return Estimate(float(values.mean()), std, float(low), float(high), len(values))


def resampled_means(values: np.ndarray, seed: int) -> np.ndarray:
    """Return the means f8[RESAMPLES] of as many samples of n, drawn with replacement from the n values."""
    rng = np.random.default_rng(seed)
    rows = max(1, AT_ONCE // len(values))
    sizes = [min(rows, RESAMPLES - start) for start in range(0, RESAMPLES, rows)]
    return np.concatenate([values[rng.integers(len(values), size=(size, len(values)))].mean(axis=1) for size in sizes])
