"""Points that go to a goal, as an environment of one's own: `goto-v1`, all n of them in one NumPy call."""

import dataclasses

import numpy as np
from plugrl_env_client.envs.base_env import BaseEnv, BaseEnvConfig, EnvError, Observation, Step
from plugrl_env_client.registration import register_env, register_env_config
from plugrl_protocol.spaces import BoxSpace

REACHED = 0.1


@register_env_config("goto-v1")
@dataclasses.dataclass
class GotoConfig(BaseEnvConfig):
    """Its flags: every field is one, `--env.speed 0.2`."""

    speed: float = 0.1
    """How far an action of length 1 goes in one step."""

    horizon: int = 40
    """Steps of an episode."""


@register_env("goto-v1")
class Goto(BaseEnv):
    """n points on a square of side 2. Success: within 0.1 of the goal, which ends the episode."""

    def __init__(self, config: GotoConfig, num_envs: int) -> None:
        if config.horizon < 1:
            raise EnvError(f"--env.horizon {config.horizon}: expected at least 1")
        self.num_envs, self.env_id = num_envs, "goto-v1"
        self.speed, self.max_episode_steps = config.speed, config.horizon
        bound = np.ones(2, np.float32)
        self.action_space = BoxSpace(shape=(2,), dtype=bound.dtype, low=-bound, high=bound)
        self.rngs = [np.random.default_rng() for _ in range(num_envs)]  # one each: no env disturbs another's numbers
        self.at, self.goal = np.zeros((num_envs, 2)), np.zeros((num_envs, 2))
        self.time = np.zeros(num_envs, np.int64)

    def reset(self, seed):
        if seed is not None:
            self.rngs = [np.random.default_rng(seed + row) for row in range(self.num_envs)]
        return self.reset_indices(np.arange(self.num_envs))

    def reset_indices(self, indices):
        for row in indices:
            self.at[row], self.goal[row] = self.rngs[row].uniform(-1, 1, (2, 2))
        self.time[indices] = 0
        return self.observe()

    def step(self, actions):
        self.at += self.speed * actions
        self.time += 1
        distance = np.linalg.norm(self.goal - self.at, axis=1)
        reached = distance < REACHED
        late = (self.time >= self.max_episode_steps) & ~reached  # cut short is not the same as over
        return Step(self.observe(), -distance, reached, late, {"success": reached})

    def observe(self):
        states = {"at": self.at, "to_goal": self.goal - self.at}
        return Observation(images={}, states=states, text=["go to the goal"] * self.num_envs)
