"""In-process runs of DPPO: a bandit, and the server's loop without a server."""

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.base_algorithm import NO_NODE, FeedbackRows
from plugrl_server.algorithm.dppo.dppo import DPPO
from plugrl_server.algorithm.dppo.dppo_config import DPPOConfig
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.dppo.dppo_policy import DPPOPolicy
from plugrl_server.policy.dppo.dppo_policy_config import DPPOPolicySmallConfig


class Bandit:
    """n environments of one-step episodes: the best action is the context, the cost the squared distance to it."""

    def __init__(self, n=16):
        self.n = n
        self.round = 0

    def observation(self):
        # A function of the round alone, so that a resumed run sees the contexts the first one would have seen.
        contexts = 0.8 * np.sin(np.arange(self.n) + 0.7 * self.round)[:, None]
        return {"images": {}, "states": {"context": contexts}, "text": np.full(self.n, "")}

    def rows(self, algorithm):
        """One round of infer and feedback, as the server hands it to the algorithm."""
        obs = self.observation()
        action, runtime_state = algorithm.infer(obs)
        train_state = algorithm.derive_train_state(runtime_state)
        reward = -((action[:, 0, 0] - obs["states"]["context"][:, 0]) ** 2)
        self.round += 1
        no, yes = np.zeros(self.n, bool), np.ones(self.n, bool)
        return FeedbackRows(
            obs=obs,
            runtime_state=runtime_state,
            train_state=train_state,
            terminated=no if self.round == 1 else yes,
            truncated=no,
            next_obs=self.observation(),
            reward=reward.astype(np.float32),
            info=[{"episode": {"r": value, "l": 1}} for value in reward],
            next_terminated=yes,
            next_truncated=no,
            nodes=[NO_NODE] * self.n,
        )


def _make_dppo(seed=0, policy=(), **changes):
    seed_everything(seed)
    torch.set_num_threads(1)
    sizes = {"obs_dim": 1, "action_dim": 1, "device": "cpu", "actor_sizes": (32, 32, 32), "critic_sizes": (32,)}
    made = DPPOPolicy(DPPOPolicySmallConfig(**{**sizes, **dict(policy)}))
    sizes = {"global_steps": 100_000, "buffer_size": 128, "batch_size": 32, "update_epochs": 2}
    return DPPO(DPPOConfig(**{**sizes, **changes}), made)


def _collect(algorithm, bandit):
    while not algorithm.should_learn():
        algorithm.feedback_rows(bandit.rows(algorithm))


def _iterate(algorithm, bandit, iterations=1):
    metrics = {}
    for _ in range(iterations):
        _collect(algorithm, bandit)
        algorithm.pre_learn()
        _, metrics = algorithm.learn()
        algorithm.post_learn()
    return metrics


@pytest.fixture
def bandit():
    return Bandit()


@pytest.fixture
def make_bandit():
    return Bandit


@pytest.fixture
def make_dppo():
    """`make_dppo(seed=0, policy={...}, **config)`: DPPO on a fresh small diffusion policy."""
    return _make_dppo


@pytest.fixture
def collect():
    """`collect(algorithm, bandit)`: fill the buffer."""
    return _collect


@pytest.fixture
def iterate():
    """`iterate(algorithm, bandit, n)`: n iterations; returns the last one's metrics."""
    return _iterate
