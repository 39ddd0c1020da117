"""Gymnasium vector environments (`SyncVectorEnv`, `AsyncVectorEnv`, an env's own) in all three autoreset modes.

- DISABLED: this package resets finished rows itself, through `options["reset_mask"]`.
- SAME_STEP: the step returns the next episode's first observation and gives the final one as `info["final_obs"]`; the
  final one is reported, the first one is kept for `reset_indices`.
- NEXT_STEP: the row resets in the step after, ignoring its action; see `BaseEnv.resets_in_step`.

A vector env of somebody else's may say one thing and do another. Where a final observation would be lost, or a reset of
some rows would end the episodes of others, it is refused.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from plugrl_env_client.envs.base_env import BaseEnv, EnvError, Observation, Step
from plugrl_env_client.envs.gym_adapter.action_spaces import action_space
from plugrl_env_client.envs.gym_adapter.info import InfoReader
from plugrl_env_client.envs.gym_adapter.layout import Layout
from plugrl_env_client.envs.gym_flags import GymFlags

_WAY_OUT = "use --env.vectorization loop, sync or async"
_FINAL = ("final_obs", "final_observation")  # Gymnasium 0.2x called it so, and reset in the same step


class GymVectorEnv(BaseEnv):
    """A `gymnasium.vector.VectorEnv`.

    Args:
        env: the vector env. A missing `metadata["autoreset_mode"]` means NEXT_STEP, as in Gymnasium.
        env_id: the name that is declared and shown.
        flags: which observations and infos to send.

    Raises:
        EnvError: its spaces cannot be sent, or its autoreset mode is none of the three.
    """

    def __init__(
        self, env: "gymnasium.vector.VectorEnv[Any, Any, Any]", *, env_id: str, flags: GymFlags | None = None
    ) -> None:
        flags = flags or GymFlags()
        self.num_envs = env.num_envs
        self.env_id = env_id
        self.action_space = action_space(env.single_action_space, env_id)
        if env.spec is not None:
            self.max_episode_steps = env.spec.max_episode_steps
            self.reward_threshold = env.spec.reward_threshold
        self._env = env
        self._space = env.single_observation_space
        self._mode = _autoreset_mode(env, env_id)
        self.resets_in_step = self._mode is AutoresetMode.NEXT_STEP
        self._layout = Layout(self._space, self.num_envs, state_keys=flags.state_keys, image_keys=flags.image_keys)
        self._info = InfoReader(flags.info_keys, flags.success_keys)
        self._is_gymnasiums = isinstance(env.unwrapped, (SyncVectorEnv, AsyncVectorEnv))
        self._next_episode: dict[int, list[Any]] = {}  # SAME_STEP: first observations that have not been shown yet

    def reset(self, seed: int | None) -> Observation:
        """Reset every env; Gymnasium's own vector envs seed env i with `seed + i`.

        Raises:
            EnvError: the env does not observe what its space says.
        """
        observations, _ = self._env.reset(seed=seed)
        self._layout.check(observations, batched=True)
        self._next_episode.clear()
        self._layout.write_batch(observations)
        return self._layout.observation

    def step(self, actions: np.ndarray) -> Step:
        """Step every env.

        Raises:
            EnvError: an episode has ended and its final observation is lost.
        """
        observations, rewards, terminated, truncated, infos = self._env.step(actions)
        self._next_episode.clear()
        self._layout.write_batch(observations)
        terminated, truncated = np.asarray(terminated, np.bool_), np.asarray(truncated, np.bool_)
        done = np.flatnonzero(terminated | truncated)
        if len(done):
            self._keep_final(done, infos)
        told = self._tell(infos, done) if len(done) or self._info.keys else {}
        return Step(self._layout.observation, np.asarray(rewards, np.float64), terminated, truncated, told)

    def reset_indices(self, indices: np.ndarray) -> Observation:
        """Reset the given rows, or show the first observations of episodes that the env has already started.

        Raises:
            EnvError: the env has reset other rows too.
        """
        to_reset = [row for row in indices.tolist() if row not in self._next_episode]
        if to_reset:
            self._reset_rows(to_reset)
        for row in set(indices.tolist()).difference(to_reset):
            self._layout.put(row, self._next_episode.pop(row))
        return self._layout.observation

    def close(self) -> None:
        """Close the vector env."""
        self._env.close()

    def _keep_final(self, done: np.ndarray, infos: Mapping[str, Any]) -> None:
        """Make finished rows show their final observations, whatever the env shows."""
        given = next((key for key in _FINAL if infos.get(key) is not None), None)
        if self._mode is AutoresetMode.SAME_STEP:
            final = infos.get("final_obs")
            for row in done.tolist():
                observation = None if final is None else _row_of(self._space, final, row)
                if observation is None:
                    raise EnvError(
                        f"{self.env_id} resets an env in the step that ends its episode and gives no "
                        f'info["final_obs"]: the final observation would be lost. {_WAY_OUT}'
                    )
                self._next_episode[row] = self._layout.row(row)
                self._layout.write(row, observation)
        elif given is not None:
            raise EnvError(
                f'{self.env_id} says that its autoreset mode is {self._mode.name} and gives info["{given}"], which '
                f"belongs to SAME_STEP: final observations would be lost. In Gymnasium 1.x "
                f'metadata["autoreset_mode"] is SAME_STEP and the key "final_obs"; or {_WAY_OUT}'
            )

    def _reset_rows(self, rows: list[int]) -> None:
        mask = np.zeros(self.num_envs, np.bool_)
        mask[rows] = True
        others = [row for row in np.flatnonzero(~mask).tolist() if row not in self._next_episode]
        before = [] if self._is_gymnasiums else [(row, self._layout.row(row)) for row in others]
        unshown = {row: self._layout.row(row) for row in self._next_episode}
        observations, _ = self._env.reset(options={"reset_mask": mask})
        self._layout.write_batch(observations)
        for row, saved in unshown.items():
            self._layout.put(row, saved)
        if not all(self._layout.shows(row, saved) for row, saved in before):
            raise EnvError(
                f'{self.env_id} was to reset some of its envs (options["reset_mask"]) and has reset others too, whose '
                f"episodes are lost; {_WAY_OUT}"
            )

    def _tell(self, infos: Mapping[str, Any], done: np.ndarray) -> dict[str, np.ndarray]:
        for key in self._info.keys:
            if key in infos and f"_{key}" not in infos:
                self._info.drop(key, f"{self.env_id} does not say whose values these are (`_{key}`)")
        rows = [self._info_of(infos, row) for row in range(self.num_envs)] if infos else [infos] * self.num_envs
        if self._mode is AutoresetMode.SAME_STEP and "final_info" in infos:
            for row in done.tolist():
                rows[row] = self._info_of(infos["final_info"], row)
        return self._info.read(rows, len(done) > 0)

    def _info_of(self, infos: Mapping[str, Any], row: int) -> dict[str, Any]:
        """One env's info out of a vector env's: an entry is an env's own only where its `_entry` mask says so.

        The mask is what tells a batch from a value that happens to have the length n (field lesson 18). One that says
        success or not is a batch without it too: vector envs of other people's leave it out.
        """
        own = {key: infos[key][row] for key in (*self._info.keys, *self._info.success_keys) if _is_own(infos, key, row)}
        for key in self._info.success_keys:
            value = np.asarray(infos.get(key))
            if f"_{key}" not in infos and value.shape == (self.num_envs,) and value.dtype == np.bool_:
                own[key] = value[row]
        return own


def _autoreset_mode(env: "gymnasium.vector.VectorEnv[Any, Any, Any]", env_id: str) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(str(known) for known in AutoresetMode)
        raise EnvError(f'{env_id}: metadata["autoreset_mode"] is {mode!r}, expected {known}') from None


def _row_of(space: "spaces.Space[Any]", batch: Any, row: int) -> Any:
    """One env's observation out of a batch, or out of an array of objects, one an env (Gymnasium's `final_obs`)."""
    if isinstance(space, spaces.Dict) and isinstance(batch, Mapping):
        return {key: _row_of(inner, batch[key], row) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple) and isinstance(batch, tuple):
        return tuple(_row_of(inner, part, row) for inner, part in zip(space.spaces, batch, strict=True))
    return batch[row]


def _is_own(infos: Mapping[str, Any], key: str, row: int) -> bool:
    mask = infos.get(f"_{key}")
    return mask is not None and bool(mask[row]) and not isinstance(infos[key], Mapping)
