"""`probe-v1`: the environment whose episodes a conformance checker can follow (SPEC 8.1)."""

import dataclasses

import numpy as np

from plugrl_env_client.envs.base_env import BaseEnv, BaseEnvConfig, EnvError, Observation, Step, refuse_info_keys
from plugrl_env_client.registration import register_env, register_env_config

UID = "probe-v1"
MAX_ENVS = 1000


@register_env_config(UID)
@dataclasses.dataclass
class ProbeConfig(BaseEnvConfig):
    """The probe has nothing to choose."""


@register_env(UID)
class ProbeEnv(BaseEnv):
    """Env i's episode lasts 3 + 2 * (i mod 3) steps and terminates; reward 1 a step; no images.

    States: `t` f8[n, 1], steps taken in this episode, and `a` f8[n, d], the last action applied (zeros before the first
    one; d is 1 until that one shows the width).
    """

    reuse_from_bytes = 0  # a checker wants to see the feature at work

    def __init__(self, config: ProbeConfig, num_envs: int) -> None:
        refuse_info_keys(config, UID)
        if num_envs > MAX_ENVS:
            raise EnvError(f"--num-envs {num_envs}: probe-v1 has at most {MAX_ENVS} envs")
        self.num_envs = num_envs
        self.env_id = UID
        self._length = 3 + 2 * (np.arange(num_envs) % 3)
        self._time = np.zeros((num_envs, 1))
        self._action = np.zeros((num_envs, 1))
        self._text = np.full(num_envs, "probe", np.dtype("<U5"))

    def reset(self, seed: int | None) -> Observation:
        """Put every env back to t = 0; nothing here is random."""
        del seed
        return self.reset_indices(np.arange(self.num_envs))

    def step(self, actions: np.ndarray) -> Step:
        """Remember the action and let one step pass."""
        self._time += 1
        self._action = np.asarray(actions, np.float64).reshape(self.num_envs, -1).copy()
        terminated = self._time[:, 0] >= self._length
        return Step(self._show(), np.ones(self.num_envs, np.float32), terminated, np.zeros_like(terminated), {})

    def reset_indices(self, indices: np.ndarray) -> Observation:
        """Put some envs back to t = 0."""
        self._time[indices] = 0
        return self._show()

    def _show(self) -> Observation:
        return Observation(images={}, states={"t": self._time, "a": self._action}, text=self._text)
