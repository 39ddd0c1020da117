"""SAC without a server: a bandit of one-step episodes, and messages of any size."""

import context_bandit
import numpy as np
import pytest
import torch
from plugrl_server.algorithm.sac.sac import SAC
from plugrl_server.algorithm.sac.sac_config import SACConfig
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.sac.sac_policy import SACPolicy
from plugrl_server.policy.sac.sac_policy_config import SACPolicyConfig

SMALL = {"global_steps": 10_000, "learning_starts": 64, "batch_size": 32, "buffer_size": 5000, "report_interval": 50}


class Bandit(context_bandit.Bandit):
    """Eight environments; the best action is 0.8 of the context."""

    gain = 0.8

    def __init__(self, n=8):
        super().__init__(n)

    def cost(self, algorithm):
        """The mean cost of the deterministic policy over contexts from -1 to 1."""
        contexts = np.linspace(-1, 1, 41)[:, None]
        obs = {"images": {}, "states": {"context": contexts}, "text": np.full(41, "")}
        algorithm.policy.deterministic = True
        action, _ = algorithm.policy.get_action_and_runtime_state(obs)
        algorithm.policy.deterministic = False
        return float(((action[:, 0, 0] - self.gain * contexts[:, 0]) ** 2).mean())


def _make_sac(seed=0, policy=(), **changes):
    seed_everything(seed)
    torch.set_num_threads(1)
    sizes = {"obs_dim": 1, "action_dim": 1, "device": "cpu", "hidden_sizes": (32, 32)}
    made = SACPolicy(SACPolicyConfig(**{**sizes, **dict(policy)}))
    return SAC(SACConfig(**{**SMALL, **changes}), made)


def _run(algorithm, bandit, rounds):
    """So many rounds, with the learn steps they make due; returns the metrics that were reported."""
    reports = []
    for _ in range(rounds):
        algorithm.feedback_rows(bandit.rows(algorithm))
        while algorithm.should_learn():
            algorithm.pre_learn()
            _, metrics = algorithm.learn()
            algorithm.post_learn()
            reports += [] if metrics is None else [metrics]
    return reports


@pytest.fixture
def make_bandit():
    return Bandit


@pytest.fixture
def make_sac():
    """`make_sac(seed=0, policy={...}, **config)`: SAC on a fresh policy."""
    return _make_sac


@pytest.fixture
def run():
    """`run(algorithm, bandit, rounds)`: returns what was reported."""
    return _run
