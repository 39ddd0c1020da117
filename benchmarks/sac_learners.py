"""SAC's updates alone, ours and Stable-Baselines3's: the same nets, batches and frames, and no environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from plugrl_server.algorithm.base_algorithm import NO_NODE
from plugrl_server.algorithm.sac.sac_config import SACConfig
from plugrl_server.algorithm.sac.sac_learner import SACLearner
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.sac.sac_policy import SACPolicy
from plugrl_server.policy.sac.sac_policy_config import SACPolicyConfig

OBS_DIM, ACTION_DIM = 17, 6  # HalfCheetah-v5


@dataclass(frozen=True)
class SACSettings:
    """SAC's usual settings; both move the actor and the temperature at every update."""

    frames: int = 20_000
    hidden: tuple[int, int] = (256, 256)
    batch_size: int = 256
    learning_rate: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005


@dataclass(frozen=True)
class Frames:
    """N frames of one environment, one after the other."""

    obs: np.ndarray  # f4[N + 1, obs_dim]
    action: np.ndarray  # f4[N, action_dim], between -1 and 1
    reward: np.ndarray  # f4[N]
    done: np.ndarray  # b1[N]

    @classmethod
    def random(cls, count: int, seed: int = 0) -> Frames:
        """Frames of no environment in particular."""
        rng = np.random.default_rng(seed)
        obs = rng.standard_normal((count + 1, OBS_DIM), dtype=np.float32)
        action = rng.uniform(-1, 1, (count, ACTION_DIM)).astype(np.float32)
        return cls(obs, action, rng.standard_normal(count, dtype=np.float32), rng.random(count) < 1e-3)


def ours(settings: SACSettings, frames: Frames) -> SACLearner:
    """Our learner, with these frames in its replay buffer, chained as the server chains them."""
    seed_everything(0)
    sizes: dict[str, Any] = {"obs_dim": OBS_DIM, "action_dim": ACTION_DIM, "hidden_sizes": settings.hidden}
    config = SACConfig(
        learning_rate=settings.learning_rate,
        critic_learning_rate=settings.learning_rate,
        buffer_size=settings.frames,
        batch_size=settings.batch_size,
        policy_frequency=1,
        gamma=settings.gamma,
        tau=settings.tau,
    )
    learner = SACLearner(config, SACPolicy(SACPolicyConfig(device="cpu", **sizes)))
    nodes = [NO_NODE]
    for i in range(settings.frames):
        one, after = slice(i, i + 1), slice(i + 1, i + 2)
        nodes = learner.add(
            obs=frames.obs[one],
            action=frames.action[one],
            next_obs=frames.obs[after],
            reward=frames.reward[one],
            terminated=frames.done[one],
            truncated=np.zeros(1, bool),
            nodes=nodes,
        )
    return learner


class StableBaselines3:
    """Their SAC, with these frames in its replay buffer, and nothing logged."""

    def __init__(self, settings: SACSettings, frames: Frames) -> None:
        from stable_baselines3 import SAC
        from stable_baselines3.common.logger import configure

        self.batch_size = settings.batch_size
        self.model = SAC(
            "MlpPolicy",
            _environment(),
            learning_rate=settings.learning_rate,
            buffer_size=settings.frames,
            batch_size=settings.batch_size,
            gamma=settings.gamma,
            tau=settings.tau,
            policy_kwargs={"net_arch": list(settings.hidden), "activation_fn": torch.nn.ReLU},
            seed=0,
            device="cpu",
        )
        self.model.set_logger(configure(None, []))
        for i in range(settings.frames):
            one = slice(i, i + 1)
            self.model.replay_buffer.add(
                frames.obs[one],
                frames.obs[i + 1 : i + 2],
                frames.action[one],
                frames.reward[one],
                frames.done[one],
                [{}],
            )

    def update(self, n: int) -> None:
        """Take n updates."""
        self.model.train(n, self.batch_size)


def _environment() -> Any:
    """An environment of the right spaces, which is never stepped."""
    import gymnasium

    class Spaces(gymnasium.Env[np.ndarray, np.ndarray]):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBS_DIM,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (ACTION_DIM,), np.float32)

    return Spaces()
