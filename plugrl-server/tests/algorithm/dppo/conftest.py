"""DPPO on a bandit."""

from functools import partial

import pytest
import torch
from context_bandit import Bandit
from plugrl_server.algorithm.dppo.dppo import DPPO
from plugrl_server.algorithm.dppo.dppo_config import DPPOConfig
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.dppo.dppo_policy import DPPOPolicy
from plugrl_server.policy.dppo.dppo_policy_config import DPPOPolicySmallConfig


def _make_dppo(seed=0, policy=(), **changes):
    seed_everything(seed)
    torch.set_num_threads(1)
    sizes = {
        "obs_dim": 1,
        "action_dim": 1,
        "device": "cpu",
        "actor_hidden_sizes": (32, 32, 32),
        "critic_hidden_sizes": (32,),
    }
    made = DPPOPolicy(DPPOPolicySmallConfig(**{**sizes, **dict(policy)}))
    sizes = {"global_steps": 100_000, "buffer_size": 128, "batch_size": 32, "update_epochs": 2}
    return DPPO(DPPOConfig(**{**sizes, **changes}), made)


@pytest.fixture
def make_bandit():
    return partial(Bandit, largest=0.8)


@pytest.fixture
def make_dppo():
    """`make_dppo(seed=0, policy={...}, **config)`: DPPO on a fresh small diffusion policy."""
    return _make_dppo
