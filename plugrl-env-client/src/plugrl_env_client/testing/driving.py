"""Runs an environment as a rollout does, with actions drawn from a generator and a copy of everything that it said."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from plugrl_protocol.spaces import ActionSpace, BoxSpace, DiscreteSpace, MultiDiscreteSpace

from plugrl_env_client.envs.base_env import BaseEnv, Observation, Step
from plugrl_env_client.testing.comparing import copied, difference

FREE_ACTION = (1,)
"""Shape of the actions given to an env that declares no action space."""
_FAR = 1.0  # stands for a bound that is infinite


@dataclasses.dataclass
class Moment:
    """One step of a drive, copied; infos that are no arrays stay what they are.

    Attributes:
        step: What the env returned.
        resetting: Rows that this step reset instead of running them (`BaseEnv.resets_in_step`).
        after: What was shown once the ended episodes were followed by new ones; None where none ended, or where the
            env does that itself in its next step.
        ended: Rows whose episode ended here.
    """

    step: Step
    resetting: np.ndarray
    after: Observation | None
    ended: np.ndarray


class Drive:
    """Drives n environments; those that end an episode begin the next one, as in a rollout.

    Args:
        env: The environments.
        seed: Of their first reset; the actions of row i are drawn from `action_seed + i`.
        action_seed: None: as `seed`.

    Attributes:
        first: The observation after the reset.
        moments: Every step so far.
    """

    def __init__(self, env: BaseEnv, seed: int, action_seed: int | None = None) -> None:
        self.env = env
        base = seed if action_seed is None else action_seed
        self._rngs = [np.random.default_rng(base + row) for row in range(env.num_envs)]
        self._resetting = np.zeros(0, np.int64)
        self.first = copied(env.reset(seed))
        self.moments: list[Moment] = []

    def actions(self) -> np.ndarray:
        """Draw the next actions, one an environment."""
        return np.stack([sample(self.env.action_space, rng) for rng in self._rngs])

    def step(self, actions: np.ndarray | None = None) -> Moment:
        """Take one step, with drawn actions unless they are given."""
        resetting = self._resetting
        told = self.env.step(self.actions() if actions is None else actions)
        step = Step(
            copied(told.observation),
            np.array(told.rewards),
            np.array(told.terminated),
            np.array(told.truncated),
            {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in told.infos.items()},
        )
        ended = np.flatnonzero(step.terminated | step.truncated)
        self._resetting = ended if self.env.resets_in_step else self._resetting
        after = None
        if len(ended) and not self.env.resets_in_step:
            after = copied(self.env.reset_indices(ended))
        self.moments.append(Moment(step, resetting, after, ended))
        return self.moments[-1]

    def steps(self, count: int) -> list[Moment]:
        """Take `count` steps."""
        return [self.step() for _ in range(count)]

    def until_ended(self, most: int, rows: Sequence[int] = ()) -> Moment | None:
        """Step until an episode ends (of one of `rows`, if any are given), `most` steps at most."""
        for _ in range(most):
            moment = self.step()
            if len(np.intersect1d(moment.ended, rows) if rows else moment.ended):
                return moment
        return None


def first_difference(drive: Drive, other: Drive, steps: int) -> str | None:
    """Where two drives differ first, None where they do not; `drive` has been driven, `other` is, for `steps` steps."""
    found = difference(drive.first, other.first)
    if found is not None:
        return f"after reset, {found}"
    for time, moment in enumerate(drive.moments[:steps], start=1):
        found = _moments_differ(moment, other.step())
        if found is not None:
            return f"after {time} steps, {found}"
    return None


def _moments_differ(one: Moment, other: Moment) -> str | None:
    found = difference(one.step.observation, other.step.observation)
    for name in ("rewards", "terminated", "truncated"):
        first, second = getattr(one.step, name), getattr(other.step, name)
        if found is None and not np.array_equal(first, second):
            found = f"{name} {first} against {second}"
    if found is None and one.after is not None and other.after is not None:
        found = difference(one.after, other.after)
    return found


def sample(space: ActionSpace | None, rng: np.random.Generator) -> np.ndarray:
    """Draw one action of a space, in its dtype; zero where none is declared."""
    if space is None:
        return np.zeros(FREE_ACTION, np.float32)
    if isinstance(space, BoxSpace):
        low, high = finite_bounds(space)
        if space.dtype.kind in "iu":
            return np.asarray(rng.integers(low, high, endpoint=True), space.dtype)
        drawn = np.asarray(rng.uniform(low, high), space.dtype)  # a plain number where the space has no axis
        return drawn.clip(low.astype(space.dtype), high.astype(space.dtype))
    if isinstance(space, DiscreteSpace):
        return np.asarray(space.start + rng.integers(space.n), space.dtype)
    choices = space.nvec if isinstance(space, MultiDiscreteSpace) else np.full(space.n, 2)
    return rng.integers(choices).astype(space.dtype)


def corners(space: ActionSpace | None) -> list[np.ndarray]:
    """The outermost actions of a space: its bounds, or its first and its last choice."""
    if space is None:
        return [np.zeros(FREE_ACTION, np.float32)]
    if isinstance(space, BoxSpace):
        return [bound.astype(space.dtype) for bound in finite_bounds(space)]
    if isinstance(space, DiscreteSpace):
        return [np.asarray(choice, space.dtype) for choice in (space.start, space.start + space.n - 1)]
    last = space.nvec - 1 if isinstance(space, MultiDiscreteSpace) else np.ones(space.n)
    return [np.zeros(space.shape, space.dtype), last.astype(space.dtype)]


def finite_bounds(space: BoxSpace) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of a box, with a number near the other bound, or near 0, where one is infinite."""
    if space.dtype.kind in "iu":
        return space.low, space.high
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    far_low = np.where(np.isfinite(high), np.minimum(high, 0) - _FAR, -_FAR)
    low = np.where(np.isfinite(low), low, far_low)
    return low, np.where(np.isfinite(high), high, np.maximum(low, 0) + _FAR)
