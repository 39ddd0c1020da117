"""The guide's environment: the pages of the custom environment show this file from the imports on."""

import dataclasses

import numpy as np
from plugrl_env_client.envs.base_env import BaseEnv, BaseEnvConfig, Observation, Step
from plugrl_env_client.registration import register_env, register_env_config
from plugrl_protocol.spaces import BoxSpace


@register_env_config("robot-v1")
@dataclasses.dataclass
class RobotConfig(BaseEnvConfig):
    speed: float = 0.1
    """How far one action goes: the help of --env.speed."""


@register_env("robot-v1")
class Robot(BaseEnv):
    """n robots that walk a metre: this line is shown in the list of families."""

    def __init__(self, config: RobotConfig, num_envs: int) -> None:
        self.num_envs, self.env_id, self.max_episode_steps = num_envs, "robot-v1", 100
        bound = np.ones(1, np.float32)
        self.action_space = BoxSpace(shape=(1,), dtype=bound.dtype, low=-bound, high=bound)
        self.speed = config.speed
        self.rngs = [np.random.default_rng() for _ in range(num_envs)]
        self.at, self.time = np.zeros((num_envs, 1)), np.zeros(num_envs, np.int64)

    def reset(self, seed: int | None) -> Observation:
        if seed is not None:
            self.rngs = [np.random.default_rng(seed + i) for i in range(self.num_envs)]
        return self.reset_indices(np.arange(self.num_envs))

    def reset_indices(self, indices: np.ndarray) -> Observation:
        for i in indices:
            self.at[i] = self.rngs[i].uniform(-0.1, 0.1)
        self.time[indices] = 0
        return self.observe()

    def step(self, actions: np.ndarray) -> Step:
        self.at += self.speed * actions
        self.time += 1
        arrived = self.at[:, 0] >= 1
        late = (self.time >= self.max_episode_steps) & ~arrived
        return Step(self.observe(), arrived.astype(np.float64), arrived, late, {"success": arrived})

    def observe(self) -> Observation:
        return Observation(images={}, states={"at": self.at}, text=["walk"] * self.num_envs)
