"""Every built-in algorithm and policy, and the guide's minimal template, keep the contracts."""

from typing import ClassVar

import numpy as np
from plugrl_protocol.spaces import DiscreteSpace, MultiDiscreteSpace
from plugrl_server.algorithm.dummy.dummy import DummyAlgorithm
from plugrl_server.algorithm.dummy.dummy_config import DummyAlgoConfig
from plugrl_server.algorithm.ppo.ppo import PPO
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig
from plugrl_server.testing import AlgorithmContract, PolicyContract

SMALL = PPOConfig(buffer_size=16, batch_size=8, update_epochs=1, save_interval=2, global_steps=10_000)


class TestPPOOnGaussian(AlgorithmContract):
    def make_algorithm(self):
        return PPO(SMALL, self.make_policy())


class TestPPOOnCategorical(TestPPOOnGaussian):
    action_space = DiscreteSpace(3)


class TestDummy(AlgorithmContract):
    learns = False

    def make_algorithm(self):
        return DummyAlgorithm(DummyAlgoConfig(save_interval=20), self.make_policy())

    def make_policy(self):
        return DummyPolicy(self.sized(DummyPolicyConfig()))


class TestDummyThatPretendsToLearn(TestDummy):
    learns = True
    untrained = ("weight",)

    def make_algorithm(self):
        return DummyAlgorithm(DummyAlgoConfig(save_interval=20, learn_every=16), self.make_policy())


class TestGaussianPolicy(PolicyContract):
    pass


class TestGaussianPolicyOverTwoStates(PolicyContract):
    states: ClassVar = {"joints": 4, "goal": 2}


class TestCategoricalPolicy(PolicyContract):
    action_space = DiscreteSpace(4, start=-1)


class TestCategoricalPolicyOfParts(PolicyContract):
    action_space = MultiDiscreteSpace(np.array([2, 3]))


class TestDummyPolicy(PolicyContract):
    def make_policy(self):
        return DummyPolicy(self.sized(DummyPolicyConfig(device="cpu")))


class TestDummyPolicyOnDiscrete(TestDummyPolicy):
    action_space = DiscreteSpace(4)
