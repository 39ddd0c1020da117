"""Figures of finished episodes: for each env, and for all of them."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Spread:
    """Mean, deviation and range of some quantity, for each of n envs.

    Attributes:
        count: int64[n], how many values there were.
        mean: float64[n], 0 where there were none.
        squares: float64[n], the sum of (value - mean)**2.
        least: float64[n], inf where there were none.
        most: float64[n], -inf where there were none.
    """

    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    least: np.ndarray
    most: np.ndarray

    @classmethod
    def of(cls, num_envs: int, envs: np.ndarray, values: np.ndarray) -> "Spread":
        """Of k values.

        Args:
            num_envs: n.
            envs: int64[k], the env that each is of.
            values: float64[k].
        """
        count = np.bincount(envs, minlength=num_envs)
        mean = np.bincount(envs, values, num_envs) / np.maximum(count, 1)
        with _whatever_an_env_pays():
            squares = np.bincount(envs, (values - mean[envs]) ** 2, num_envs)
        least, most = np.full(num_envs, math.inf), np.full(num_envs, -math.inf)
        np.minimum.at(least, envs, values)
        np.maximum.at(most, envs, values)
        return cls(count, mean, squares, least, most)

    def merged(self, other: "Spread") -> "Spread":
        """With further values of the same envs (Chan, Golub and LeVeque, 1979)."""
        count = self.count + other.count
        part = other.count / np.maximum(count, 1)
        with _whatever_an_env_pays():
            apart = other.mean - self.mean
            mean = self.mean + apart * part
            squares = self.squares + other.squares + apart**2 * self.count * part
        return Spread(count, mean, squares, np.minimum(self.least, other.least), np.maximum(self.most, other.most))

    def total(self) -> "Spread":
        """All envs taken as one."""
        count = self.count.sum(keepdims=True)
        with _whatever_an_env_pays():
            mean = (self.mean * self.count).sum(keepdims=True) / np.maximum(count, 1)
            squares = (self.squares + self.count * (self.mean - mean) ** 2).sum(keepdims=True)
        least = np.min(self.least, keepdims=True, initial=math.inf)
        most = np.max(self.most, keepdims=True, initial=-math.inf)
        return Spread(count, mean, squares, least, most)

    def as_json(self, env: int) -> dict[str, float | None] | None:
        """Of one env: mean, population standard deviation, min and max; None where there is no value.

        A figure that is not finite (an env paid NaN) is null: JSON knows no NaN.
        """
        count = int(self.count[env])
        if count == 0:
            return None
        deviation = math.sqrt(float(self.squares[env]) / count)
        found = {"mean": self.mean[env], "std": deviation, "min": self.least[env], "max": self.most[env]}
        return {name: float(value) if math.isfinite(value) else None for name, value in found.items()}


@dataclasses.dataclass(frozen=True)
class EpisodeFigures:
    """Of the finished episodes of n envs.

    Attributes:
        returns: of every episode.
        lengths: in env steps.
        judged: int64[n], the episodes of which somebody knows whether they were a success.
        successes: int64[n], how many of those were.
    """

    returns: Spread
    lengths: Spread
    judged: np.ndarray
    successes: np.ndarray

    @classmethod
    def of(
        cls,
        num_envs: int,
        envs: np.ndarray,
        returns: np.ndarray,
        lengths: np.ndarray,
        judged: np.ndarray,
        successes: np.ndarray,
    ) -> "EpisodeFigures":
        """Of k episodes.

        Args:
            num_envs: n.
            envs: int64[k], the env that each was of.
            returns: float64[k].
            lengths: int64[k].
            judged: bool[k], whether `successes` counts.
            successes: bool[k].
        """
        return cls(
            Spread.of(num_envs, envs, returns),
            Spread.of(num_envs, envs, lengths),
            np.bincount(envs[judged], minlength=num_envs),
            np.bincount(envs[judged & successes], minlength=num_envs),
        )

    @classmethod
    def none(cls, num_envs: int) -> "EpisodeFigures":
        """Of n envs that have not finished any."""
        no_envs, nothing, no_flags = np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.bool_)
        return cls.of(num_envs, no_envs, nothing, nothing, no_flags, no_flags)

    @property
    def episodes(self) -> np.ndarray:
        """int64[n]: how many each env finished."""
        return self.returns.count

    def merged(self, later: "EpisodeFigures") -> "EpisodeFigures":
        """With further episodes of the same envs."""
        return EpisodeFigures(
            self.returns.merged(later.returns),
            self.lengths.merged(later.lengths),
            self.judged + later.judged,
            self.successes + later.successes,
        )

    def total(self) -> "EpisodeFigures":
        """All envs taken as one."""
        return EpisodeFigures(
            self.returns.total(),
            self.lengths.total(),
            self.judged.sum(keepdims=True),
            self.successes.sum(keepdims=True),
        )

    def as_json(self, env: int = 0) -> dict[str, Any]:
        """Of one env, for summary.json; what nobody knows is null."""
        judged = int(self.judged[env])
        return {
            "episodes": int(self.episodes[env]),
            "returns": self.returns.as_json(env),
            "lengths": self.lengths.as_json(env),
            "successes": int(self.successes[env]) if judged else None,
            "success_rate": int(self.successes[env]) / judged if judged else None,
        }


def side_by_side(parts: Sequence[EpisodeFigures]) -> EpisodeFigures:
    """Of the envs of all parts, in their order."""
    if not parts:
        return EpisodeFigures.none(0)
    return EpisodeFigures(
        _joined([part.returns for part in parts]),
        _joined([part.lengths for part in parts]),
        np.concatenate([part.judged for part in parts]),
        np.concatenate([part.successes for part in parts]),
    )


def _joined(spreads: Sequence[Spread]) -> Spread:
    columns = (field.name for field in dataclasses.fields(Spread))
    return Spread(*(np.concatenate([getattr(spread, name) for spread in spreads]) for name in columns))


def _whatever_an_env_pays() -> np.errstate:
    """Infinities and NaN stay in their own env's figures and in the total; they warn of nothing."""
    return np.errstate(invalid="ignore", over="ignore")
