"""PPO on a bandit of states or of images."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from context_bandit import Bandit
from plugrl_server.algorithm.ppo.ppo import PPO
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.gaussian.gaussian_policy import GaussianPolicy
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig


class SeeingBandit(Bandit):
    """The same, the context also shown as the brightness of an image."""

    policy: ClassVar = {"image_keys": ("cam",), "image_shapes": {"cam": (20, 20, 1)}, "image_encoder": "impala-small"}

    def observation(self):
        obs = super().observation()
        brightness = 127.5 * (1 + obs["states"]["context"][:, :, None, None])
        obs["images"] = {"cam": np.broadcast_to(brightness, (self.n, 20, 20, 1)).astype(np.uint8)}
        return obs


def _make_ppo(seed=0, policy=(), **changes):
    seed_everything(seed)
    torch.set_num_threads(1)
    made = GaussianPolicy(GaussianPolicyConfig(**{"obs_dim": 1, "action_dim": 1, "device": "cpu", **dict(policy)}))
    sizes = {"global_steps": 100_000, "buffer_size": 128, "batch_size": 32, "update_epochs": 4}
    return PPO(PPOConfig(**{**sizes, **changes}), made)


@pytest.fixture
def seeing_bandit():
    return SeeingBandit()


@pytest.fixture
def make_bandit():
    return Bandit


@pytest.fixture
def make_ppo():
    """`make_ppo(seed=0, policy={...}, **config)`: PPO on a fresh Gaussian policy."""
    return _make_ppo
