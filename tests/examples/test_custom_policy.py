"""`examples/custom_policy`: it keeps the contract, alone and under PPO, and its density is the one it samples from."""

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace
from plugrl_server.algorithm.ppo.ppo import PPO
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.testing import AlgorithmContract, PolicyContract

from tests.examples import sources

beta_policy = sources.load("custom_policy", "beta_policy")


def made(contract, **options):
    config = beta_policy.BetaPolicyConfig(device="cpu", hidden_sizes=(8,), **options)
    return beta_policy.BetaPolicy(contract.sized(config))


class TestBetaPolicy(PolicyContract):
    action_space = BoxSpace((2,), np.dtype("<f4"), np.array([-1, 5], "<f4"), np.array([1, 6], "<f4"))

    def make_policy(self):
        return made(self)


class TestChunksOfThree(TestBetaPolicy):
    def make_policy(self):
        return made(self, action_horizon=3)


class TestUnderPPO(AlgorithmContract):
    def make_policy(self):
        return made(self)

    def make_algorithm(self):
        return PPO(PPOConfig(buffer_size=16, batch_size=8, update_epochs=1, save_interval=2), self.make_policy())


def test_unbounded_and_discrete_spaces_are_refused():
    policy = made(PolicyContract())
    endless = BoxSpace((2,), np.dtype("<f4"), np.full(2, -np.inf, "<f4"), np.full(2, np.inf, "<f4"))
    for space in (endless, DiscreteSpace(2)):
        with pytest.raises(ValueError, match="finite bounds, got"):
            policy.adopt_action_space(space)


def test_the_density_is_that_of_the_samples():
    """The mean of exp(-log p) over samples is the volume they fill: 1 for the unit square."""
    contract = PolicyContract()
    contract.seed(0)
    policy = made(contract)
    one = contract.make_env(1).obs
    obs = {**one, "states": {"obs": one["states"]["obs"].repeat(20_000, 0)}, "text": one["text"].repeat(20_000)}
    _, state = policy.get_action_and_runtime_state(obs)
    with torch.no_grad():
        features = policy.features(policy.observe(obs))
        log_prob, _, _ = policy.evaluate(features, torch.from_numpy(state["sample"]))
    assert (-log_prob).exp().mean().item() == pytest.approx(1, abs=0.05)
