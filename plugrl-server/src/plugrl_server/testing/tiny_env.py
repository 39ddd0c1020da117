"""A built-in environment in NumPy: short ragged episodes, any action space, states and images of any size."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from plugrl_protocol.spaces import ActionSpace

Observation = dict[str, Any]


@dataclasses.dataclass
class Outcome:
    """What n environments did with their chunks.

    Attributes:
        next_obs: The observation after the chunk; where an episode ended, its final one.
        reward: f4[n], between -1 and 0: the closer the mean action is to the first state, the higher.
        terminated: b1[n].
        truncated: b1[n]; odd episodes are truncated, even ones terminate.
        info: Each row's own map; the figures of its episode where it ended.
    """

    next_obs: Observation
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: list[dict[str, Any]]


class TinyEnv:
    """n environments whose observations are random and whose episodes last 2 to 9 chunks.

    Args:
        action_space: What actions look like.
        states: Widths of the states by name.
        images: [height, width, channels] of the images by name.
        num_envs: n.
        seed: Seed of the observations.
        length: Chunks in every episode; None for ragged ones.

    Attributes:
        obs: The present observation, of running episodes only.
        started: Whether the frame before this one ended an episode, by `terminated` and `truncated`, b1[2, n].
    """

    def __init__(
        self,
        action_space: ActionSpace,
        states: Mapping[str, int],
        images: Mapping[str, tuple[int, int, int]] | None = None,
        *,
        num_envs: int,
        seed: int = 0,
        length: int | None = None,
    ) -> None:
        self.action_space, self.num_envs = action_space, num_envs
        self._states, self._images, self._length = dict(states), dict(images or {}), length
        self._rng = np.random.default_rng(seed)
        self._steps, self._episodes = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self._returns = np.zeros(num_envs)
        self.obs = self.observe(num_envs)
        self.started = np.zeros((2, num_envs), np.bool_)

    def observe(self, n: int) -> Observation:
        """Return a random observation of n environments."""
        rng = self._rng
        return {
            "images": {key: rng.integers(0, 256, (n, *shape), np.uint8) for key, shape in self._images.items()},
            "states": {key: rng.uniform(-1, 1, (n, width)) for key, width in self._states.items()},
            "text": np.full(n, "", "<U1"),
        }

    def step(self, action: np.ndarray) -> Outcome:
        """Run one chunk in every environment; ended episodes are followed by new ones.

        Raises:
            ValueError: The actions are not [n, H, *action shape].
        """
        if action.shape[:1] + action.shape[2:] != (self.num_envs, *self.action_space.shape):
            raise ValueError(f"actions of shape {list(action.shape)}, expected [{self.num_envs}, H, *action shape]")
        reward = self._reward(action)
        self._steps += 1
        self._returns += reward
        over = self._steps >= self._lengths()
        terminates = self._episodes % 2 == 0
        outcome = Outcome(
            next_obs=self.observe(self.num_envs),
            reward=reward,
            terminated=over & terminates,
            truncated=over & ~terminates,
            info=[self._figures(i) if over[i] else {} for i in range(self.num_envs)],
        )
        self._begin(over)
        fresh = self.observe(self.num_envs)
        self.obs = _merged(outcome.next_obs, fresh, over)
        self.started = np.array([outcome.terminated, outcome.truncated])
        return outcome

    def _reward(self, action: np.ndarray) -> np.ndarray:
        target = next(iter(self.obs["states"].values()), np.zeros((self.num_envs, 1)))[:, 0]
        chosen = action.reshape(self.num_envs, -1).astype(np.float64).mean(1)
        reward: np.ndarray = -np.tanh(np.abs(chosen - target)).astype(np.float32)
        return reward

    def _lengths(self) -> np.ndarray:
        if self._length is not None:
            return np.full(self.num_envs, self._length)
        return 2 + (3 * np.arange(self.num_envs) + 5 * self._episodes) % 8

    def _figures(self, i: int) -> dict[str, Any]:
        finite = self._returns[i] if math.isfinite(self._returns[i]) else 0.0
        return {"episode": {"r": np.float32(finite), "l": int(self._steps[i]), "s": bool(finite > -1), "mask": True}}

    def _begin(self, over: np.ndarray) -> None:
        self._episodes[over] += 1
        self._steps[over] = 0
        self._returns[over] = 0


def _merged(running: Observation, fresh: Observation, over: np.ndarray) -> Observation:
    """Return the rows of `fresh` where an episode is over, of `running` elsewhere."""

    def choose(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.where(over.reshape(-1, *[1] * (first.ndim - 1)), second, first)

    merged: Observation = {
        kind: {key: choose(array, fresh[kind][key]) for key, array in running[kind].items()}
        for kind in ("images", "states")
    }
    return {**merged, "text": running["text"]}
