"""Gymnasium vector environments (`SyncVectorEnv`, `AsyncVectorEnv`, an env's own) in all three autoreset modes.

- DISABLED: this package resets finished rows itself, through `options["reset_mask"]`.
- SAME_STEP: the step returns the next episode's first observation and hides the final one in the info; the final one is
  reported, the first one is kept for `reset_indices`.
- NEXT_STEP: the row resets in the step after, ignoring its action; see `BaseEnv.resets_in_step`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from plugrl_env_client.envs.base_env import BaseEnv, Observation, Step
from plugrl_env_client.envs.gym_adapter.action_spaces import action_space
from plugrl_env_client.envs.gym_adapter.info import InfoReader
from plugrl_env_client.envs.gym_adapter.layout import Layout


class GymVectorEnv(BaseEnv):
    """A `gymnasium.vector.VectorEnv`.

    Args:
        env: the vector env. A missing `metadata["autoreset_mode"]` means NEXT_STEP, as in Gymnasium.
        env_id: the name that is declared and shown.
        info_keys: entries of the infos to send.

    Raises:
        EnvError: its spaces cannot be sent.
    """

    def __init__(
        self, env: "gymnasium.vector.VectorEnv[Any, Any, Any]", *, env_id: str, info_keys: Sequence[str] = ()
    ) -> None:
        self.num_envs = env.num_envs
        self.env_id = env_id
        self.action_space = action_space(env.single_action_space, env_id)
        if env.spec is not None:
            self.max_episode_steps = env.spec.max_episode_steps
            self.reward_threshold = env.spec.reward_threshold
        self._env = env
        self._mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self.resets_in_step = self._mode is AutoresetMode.NEXT_STEP
        self._layout = Layout(env.single_observation_space, self.num_envs)
        self._info = InfoReader(info_keys)
        self._reads_every_info = bool(info_keys)
        self._next_episode: list[Any] = []

    def reset(self, seed: int | None) -> Observation:
        """Reset every env; Gymnasium's own vector envs seed env i with `seed + i`."""
        observations, _ = self._env.reset(seed=seed)
        self._layout.write_batch(observations)
        return self._layout.observation

    def step(self, actions: np.ndarray) -> Step:
        """Step every env."""
        observations, rewards, terminated, truncated, infos = self._env.step(actions)
        self._layout.write_batch(observations)
        done = terminated | truncated
        any_done = bool(done.any())
        if any_done and self._mode is AutoresetMode.SAME_STEP:
            self._next_episode = self._layout.snapshot()
            for row in np.flatnonzero(done):
                self._layout.write(int(row), infos["final_obs"][row])
        told = self._tell(infos, done) if any_done or self._reads_every_info else {}
        return Step(self._layout.observation, np.asarray(rewards), terminated, truncated, told)

    def reset_indices(self, indices: np.ndarray) -> Observation:
        """Reset the given rows, or show the first observations of episodes that the env has already started."""
        if self._mode is AutoresetMode.SAME_STEP:
            self._layout.restore(indices, self._next_episode)
        else:
            mask = np.zeros(self.num_envs, np.bool_)
            mask[indices] = True
            observations, _ = self._env.reset(options={"reset_mask": mask})
            self._layout.write_batch(observations)
        return self._layout.observation

    def close(self) -> None:
        """Close the vector env."""
        self._env.close()

    def _tell(self, infos: Mapping[str, Any], done: np.ndarray) -> dict[str, np.ndarray]:
        rows = [_row(infos, row) for row in range(self.num_envs)]
        if self._mode is AutoresetMode.SAME_STEP and "final_info" in infos:
            for row in np.flatnonzero(done):
                rows[row] = _row(infos["final_info"], int(row))
        return self._info.read(rows, bool(done.any()))


def _row(infos: Mapping[str, Any], row: int) -> dict[str, Any]:
    """One env's info out of a vector env's: an entry is an env's own only where its `_entry` mask says so.

    The mask is what tells a batch from a value that happens to have the length n (field lesson 18).
    """
    return {key: value[row] for key, value in infos.items() if _is_batch(infos, key, row)}


def _is_batch(infos: Mapping[str, Any], key: str, row: int) -> bool:
    mask = infos.get(f"_{key}")
    return mask is not None and bool(mask[row]) and not isinstance(infos[key], Mapping)
