"""An environment whose observations say where they come from, and the formulae that predict all it does.

Client c's env e plays episode p for `episode_length(c, e, p)` steps. Each step earns `step_reward(c, e, p, t)`; even
episodes terminate, odd ones are truncated. The state `id` is [client, env, episode, step, last action's first number].
"""

import dataclasses
import os
import signal
from pathlib import Path

import numpy as np
from plugrl_env_client.envs.base_env import BaseEnv, BaseEnvConfig, Observation, Step
from plugrl_env_client.registration import register_env, register_env_config
from plugrl_protocol.spaces import BoxSpace


def episode_length(client: int, env: int, episode: int) -> int:
    """3 to 11 steps, so that with a horizon of 4 chunks are cut short at every place."""
    return 3 + (5 * client + 3 * env + 7 * episode) % 9


def step_reward(client: int, env: int, episode: int, step: int) -> float:
    """A different amount for every step nearby; sums of a few are exact in float32."""
    return 1 + step + 16 * env + 64 * client + 256 * (episode % 16)


def terminates(episode: int) -> bool:
    """Whether the episode terminates; the others are truncated."""
    return episode % 2 == 0


@register_env_config("ragged-v1")
@dataclasses.dataclass
class RaggedConfig(BaseEnvConfig):
    """Which client this is."""

    client_number: int = 0
    die_at_sight_of: str | None = None
    """Kill the whole process, as `kill -9` does, in a step after this file has appeared, the 21st at the earliest."""


@register_env("ragged-v1")
class RaggedEnv(BaseEnv):
    """Ragged episodes for the accounting test."""

    def __init__(self, config: RaggedConfig, num_envs: int) -> None:
        self.config = config
        self.num_envs = num_envs
        self.env_id = "ragged-v1"
        bound = np.full(2, 1, np.float32)
        self.action_space = BoxSpace(shape=(2,), dtype=bound.dtype, low=-bound, high=bound)
        self.state = np.zeros((num_envs, 5))
        self.state[:, 0] = config.client_number
        self.state[:, 1] = np.arange(num_envs)
        self.state[:, 2] = -1
        self.steps = 0

    def reset(self, seed: int | None) -> Observation:
        return self.reset_indices(np.arange(self.num_envs))

    def reset_indices(self, indices: np.ndarray) -> Observation:
        self.state[indices, 2] += 1
        self.state[indices, 3:] = 0
        return self.show()

    def step(self, actions: np.ndarray) -> Step:
        self.steps += 1
        file = self.config.die_at_sight_of
        if file is not None and self.steps > 20 and Path(file).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        self.state[:, 3] += 1
        self.state[:, 4] = actions[:, 0]
        rows = [tuple(int(number) for number in row[:4]) for row in self.state]
        rewards = np.array([step_reward(*row) for row in rows], np.float32)
        over = np.array([row[3] >= episode_length(*row[:3]) for row in rows])
        terminal = np.array([terminates(row[2]) for row in rows])
        return Step(self.show(), rewards, over & terminal, over & ~terminal, {})

    def show(self) -> Observation:
        return Observation(images={}, states={"id": self.state}, text=np.full(self.num_envs, "", "<U1"))
