"""Built-in algorithms and policies keep the contracts: here, or in the tests of their own that `KEPT` names."""

import runpy
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from plugrl_protocol.spaces import DiscreteSpace, MultiDiscreteSpace
from plugrl_server.algorithm.builtins import BUILTIN_ALGORITHMS
from plugrl_server.algorithm.dummy.dummy import DummyAlgorithm
from plugrl_server.algorithm.dummy.dummy_config import DummyAlgoConfig
from plugrl_server.algorithm.evaluation.evaluation import Evaluation
from plugrl_server.algorithm.evaluation.evaluation_config import EvaluationConfig
from plugrl_server.algorithm.fpo.fpo import FPO
from plugrl_server.algorithm.fpo.fpo_config import FPOConfig, FPOPlusPlusConfig
from plugrl_server.algorithm.ppo.ppo import PPO
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.algorithm.registration import ALGORITHMS
from plugrl_server.algorithm.sac.sac import SAC
from plugrl_server.algorithm.sac.sac_config import SACConfig
from plugrl_server.learning import trees
from plugrl_server.policy.builtins import BUILTIN_POLICIES
from plugrl_server.policy.categorical.categorical_policy import CategoricalPolicy
from plugrl_server.policy.categorical.categorical_policy_config import CategoricalPolicyConfig
from plugrl_server.policy.dppo_gaussian.dppo_gaussian_policy import DPPOGaussianPolicy
from plugrl_server.policy.dppo_gaussian.dppo_gaussian_policy_config import DPPOGaussianPolicyConfig
from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig
from plugrl_server.policy.fpo.fpo_policy import FPOPolicy
from plugrl_server.policy.fpo.fpo_policy_config import FPOPolicyConfig
from plugrl_server.policy.gaussian.gaussian_policy import GaussianPolicy
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig
from plugrl_server.policy.registration import POLICIES
from plugrl_server.policy.sac.sac_policy import SACPolicy
from plugrl_server.policy.sac.sac_policy_config import SACPolicyConfig
from plugrl_server.testing import AlgorithmContract, PolicyContract
from plugrl_server.testing.comparing import difference

SMALL = PPOConfig(buffer_size=16, batch_size=8, update_epochs=1, save_interval=2, global_steps=10_000)


class TestPPOOnGaussian(AlgorithmContract):
    def make_algorithm(self):
        return PPO(SMALL, self.make_policy())


class TestPPOOnCategorical(TestPPOOnGaussian):
    action_space = DiscreteSpace(3)


class TestPPOOnImages(TestPPOOnGaussian):
    images: ClassVar = {"eye": (40, 40, 3)}


class TestPPOOnDPPOGaussian(TestPPOOnGaussian):
    def make_policy(self):
        sizes = {"actor_hidden_sizes": (8,), "critic_hidden_sizes": (8,), "device": "cpu"}
        return DPPOGaussianPolicy(self.sized(DPPOGaussianPolicyConfig(**sizes)))


def flow_policy(contract):
    sizes = {"actor_hidden_sizes": (8,), "critic_hidden_sizes": (8,), "num_steps": 3, "device": "cpu"}
    return FPOPolicy(contract.sized(FPOPolicyConfig(**sizes)))


class TestFPO(AlgorithmContract):
    make_config: ClassVar = FPOConfig

    def make_policy(self):
        return flow_policy(self)

    def make_algorithm(self):
        sizes = {"buffer_size": 16, "batch_size": 8, "update_epochs": 1, "save_interval": 2, "global_steps": 10_000}
        return FPO(self.make_config(**sizes), self.make_policy())


class TestFPOPlusPlus(TestFPO):
    make_config: ClassVar = FPOPlusPlusConfig


class TestEvaluation(AlgorithmContract):
    learns = stops_at_global_steps = False  # a number of episodes ends it

    def make_policy(self):
        self.seed(0)  # as if from the checkpoint that --algo.policy-checkpoint-path names
        return super().make_policy()

    def make_algorithm(self):
        return Evaluation(EvaluationConfig(num_episodes=10_000, save_interval=5), self.make_policy())


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


class TestGaussianPolicyWithImages(PolicyContract):
    images: ClassVar = {"eye": (40, 40, 3)}

    def make_policy(self):
        return GaussianPolicy(self.sized(GaussianPolicyConfig(device="cpu", hidden_sizes=(8,), action_horizon=2)))


class TestCategoricalPolicyOfImagesAlone(PolicyContract):
    action_space = DiscreteSpace(4)
    states: ClassVar = {}
    images: ClassVar = {"eye": (40, 40, 3)}

    def make_policy(self):
        return CategoricalPolicy(self.sized(CategoricalPolicyConfig(device="cpu", hidden_sizes=(8,))))


class TestDPPOGaussianPolicy(PolicyContract):
    def make_policy(self):
        sizes = {"actor_hidden_sizes": (8,), "critic_hidden_sizes": (8,), "device": "cpu"}
        return DPPOGaussianPolicy(self.sized(DPPOGaussianPolicyConfig(**sizes)))


class TestFPOPolicy(PolicyContract):
    def make_policy(self):
        return flow_policy(self)


class TestDummyPolicy(PolicyContract):
    def make_policy(self):
        return DummyPolicy(self.sized(DummyPolicyConfig(device="cpu")))


class TestDummyPolicyOnDiscrete(TestDummyPolicy):
    action_space = DiscreteSpace(4)


def kept_by(path, name="TestContract"):
    """The test class of another file, which pytest collects there."""
    return runpy.run_path(str(TESTS / path))[name]


TESTS = Path(__file__).parents[1]
KEPT = {
    "ppo": TestPPOOnGaussian,
    "fpo": TestFPO,
    "eval": TestEvaluation,
    "dummy": TestDummy,
    "sac": kept_by("algorithm/sac/test_sac_contract.py", "TestSAC"),
    "dppo": kept_by("algorithm/dppo/test_dppo_state.py", "TestDPPOWithFlow"),
    "gaussian-policy": TestGaussianPolicy,
    "categorical-policy": TestCategoricalPolicy,
    "dppo-gaussian-policy": TestDPPOGaussianPolicy,
    "dummy-policy": TestDummyPolicy,
    "fpo-policy": TestFPOPolicy,
    "sac-policy": kept_by("algorithm/sac/test_sac_contract.py", "TestSACPolicy"),
    "dppo-policy": kept_by("algorithm/dppo/test_dppo_state.py", "TestDPPOPolicy"),
}
KEPT_WITH_STAND_INS = {
    "openpi-policy": kept_by("policy/openpi/test_openpi_policy.py"),
    "lerobot-policy": kept_by("policy/lerobot/test_lerobot_policy.py"),
    "lerobot-diffusion-policy": kept_by("policy/lerobot/test_lerobot_diffusion_policy.py"),
    "lerobot-flow-policy": kept_by("policy/lerobot/test_lerobot_flow_policy.py"),
}
"""For another server, or for lerobot: made by fixtures of their own tests."""


@pytest.mark.parametrize("builtin", [*BUILTIN_ALGORITHMS, *BUILTIN_POLICIES], ids=lambda builtin: builtin.uid)
def test_every_built_in_is_held_to_its_contract(builtin):
    of_policies = builtin in BUILTIN_POLICIES
    kept = {**KEPT, **KEPT_WITH_STAND_INS}[builtin.uid]
    assert issubclass(kept, PolicyContract if of_policies else AlgorithmContract)
    assert kept.__name__.startswith("Test"), "pytest collects no other class"
    if builtin.uid in KEPT:
        made = kept().make_policy() if of_policies else kept().make_algorithm()
        assert type(made) is (POLICIES if of_policies else ALGORITHMS).get_class(builtin.uid)


@pytest.mark.parametrize("contract", [TestPPOOnGaussian, TestPPOOnCategorical, TestFPO, KEPT["dppo"]])
def test_on_policy_built_ins_size_their_buffers_by_example_train_state(contract):
    algorithm = contract().build()
    expected = trees.alloc_like(algorithm.example_train_state(3), algorithm.config.buffer_size)
    assert difference(algorithm.rollout.train_state, expected) is None


class OfSAC(AlgorithmContract):
    def make_algorithm(self):
        sizes = {"learning_starts": 8, "batch_size": 8, "buffer_size": 64, "save_interval": 20, "global_steps": 10_000}
        return SAC(SACConfig(**sizes), SACPolicy(self.sized(SACPolicyConfig(device="cpu", hidden_sizes=(8,)))))


SYMPTOM_FREE = [TestPPOOnGaussian, TestFPO, KEPT["dppo"], TestEvaluation, TestDummyThatPretendsToLearn, OfSAC]


@pytest.mark.parametrize("contract", SYMPTOM_FREE)
def test_no_built_in_shows_the_symptoms_of_a_mistake(contract):
    with contract().rehearsal() as run:
        run.until(lambda: False, exchanges=120)
        assert run.trainer.finished_episodes > 40
        assert run.trainer.symptoms.drain() == []


def test_every_algorithm_is_watched_for_symptoms():
    watched = {type(contract().make_algorithm()) for contract in SYMPTOM_FREE}
    assert watched == {ALGORITHMS.get_class(builtin.uid) for builtin in BUILTIN_ALGORITHMS}
