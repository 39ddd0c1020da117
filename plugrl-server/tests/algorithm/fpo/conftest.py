"""In-process runs of FPO: a bandit, and the server's loop without a server."""

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.base_algorithm import NO_NODE, FeedbackRows
from plugrl_server.algorithm.fpo.fpo import FPO
from plugrl_server.algorithm.fpo.fpo_config import FPOConfig
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.fpo.fpo_policy import FPOPolicy
from plugrl_server.policy.fpo.fpo_policy_config import FPOPolicyConfig


class Bandit:
    """n environments of one-step episodes: the best action is the context, the cost the squared distance to it."""

    def __init__(self, n=16):
        self.n = n
        self.round = 0

    def observation(self):
        # A function of the round alone, so that a resumed run sees the contexts the first one would have seen.
        contexts = 0.7 * np.sin(np.arange(self.n) + 0.7 * self.round)[:, None]
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


SIZES = {"obs_dim": 1, "action_dim": 1, "device": "cpu", "num_steps": 5, "critic_hidden_sizes": (32, 32)}


def _make_fpo(seed=0, policy=(), preset=FPOConfig, **changes):
    seed_everything(seed)
    torch.set_num_threads(1)
    made = FPOPolicy(FPOPolicyConfig(**{**SIZES, **dict(policy)}))
    sizes = {"global_steps": 100_000, "buffer_size": 128, "batch_size": 32, "update_epochs": 4}
    return FPO(preset(**{**sizes, **changes}), made)


def _collect(algorithm, bandit):
    while not algorithm.should_learn():
        algorithm.feedback_rows(bandit.rows(algorithm))


def _iterate(algorithm, bandit, iterations=1):
    """Returns the metrics of every iteration."""
    metrics = []
    for _ in range(iterations):
        _collect(algorithm, bandit)
        algorithm.pre_learn()
        metrics.append(algorithm.learn()[1])
        algorithm.post_learn()
    return metrics


@pytest.fixture
def bandit():
    return Bandit()


@pytest.fixture
def make_bandit():
    return Bandit


@pytest.fixture
def make_fpo():
    """`make_fpo(seed=0, policy={...}, preset=FPOConfig, **config)`: FPO on a fresh flow policy."""
    return _make_fpo


@pytest.fixture
def collect():
    """`collect(algorithm, bandit)`: fill the buffer."""
    return _collect


@pytest.fixture
def iterate():
    """`iterate(algorithm, bandit, n)`: n iterations; returns the metrics of each."""
    return _iterate
