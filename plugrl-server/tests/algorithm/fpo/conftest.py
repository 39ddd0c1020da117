"""FPO on a bandit."""

import dataclasses
from functools import partial
from typing import ClassVar

import pytest
import torch
from context_bandit import Bandit
from plugrl_server.algorithm.fpo.fpo import FPO
from plugrl_server.algorithm.fpo.fpo_config import FPOConfig
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.fpo.fpo_policy import FPOPolicy
from plugrl_server.policy.fpo.fpo_policy_config import FPOPolicyConfig

SIZES = {"obs_dim": 1, "action_dim": 1, "device": "cpu", "num_steps": 5, "critic_hidden_sizes": (32, 32)}


@dataclasses.dataclass
class Trained(FPOPolicyConfig):
    """Says that its weights are trained: the preset for fine-tuning refuses others."""

    brings_weights: ClassVar[bool] = True


def _make_fpo(seed=0, policy=(), preset=FPOConfig, **changes):
    seed_everything(seed)
    torch.set_num_threads(1)
    made = FPOPolicy(Trained(**{**SIZES, **dict(policy)}))
    sizes = {"global_steps": 100_000, "buffer_size": 128, "batch_size": 32, "update_epochs": 4}
    return FPO(preset(**{**sizes, **changes}), made)


@pytest.fixture
def make_bandit():
    return partial(Bandit, largest=0.7)


@pytest.fixture
def make_fpo():
    """`make_fpo(seed=0, policy={...}, preset=FPOConfig, **config)`: FPO on a fresh flow policy."""
    return _make_fpo


@pytest.fixture
def iterate(iterations):
    """`iterate(algorithm, bandit, n)`: n iterations; returns the metrics of each."""
    return iterations
