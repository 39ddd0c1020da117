"""`plugrl-server/examples/sac`: algorithm and policy keep the contracts that an author inherits."""

import sys

import numpy as np
import pytest
from plugrl_protocol.spaces import BoxSpace
from plugrl_server.algorithm.registration import ALGORITHMS
from plugrl_server.common.config_error import ConfigError
from plugrl_server.testing import AlgorithmContract, PolicyContract

from tests.examples import sources

sac = sources.load_sac()
SIZES = {"learning_starts": 8, "batch_size": 8, "buffer_size": 64, "report_interval": 1, "save_interval": 20}


def made(contract):
    policy = sac.SACPolicy(contract.sized(sys.modules["sac_policy"].SACPolicyConfig(device="cpu", hidden_size=8)))
    policy.adopt_action_space(contract.action_space)
    return policy


class TestSAC(AlgorithmContract):
    def make_policy(self):
        return made(self)

    def make_algorithm(self):
        return sac.SAC(sac.SACConfig(global_steps=10_000, **SIZES), self.make_policy())


class TestSACPolicy(PolicyContract):
    action_space = BoxSpace((2,), np.dtype("<f4"), np.array([-1, 5], "<f4"), np.array([1, 6], "<f4"))

    def make_policy(self):
        return made(self)


def test_unbounded_actions_are_refused():
    endless = BoxSpace((2,), np.dtype("<f4"), np.full(2, -np.inf, "<f4"), np.full(2, np.inf, "<f4"))
    with pytest.raises(ValueError, match="sac_policy needs finite bounds"):
        made(PolicyContract()).adopt_action_space(endless)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"learning_starts": 30_000}, r"learning-starts 30000 is not below --algo\.global-steps 20000"),
        ({"batch_size": 0, "buffer_size": 0}, r"--algo\.batch-size 0: must be at least 1"),
        ({"buffer_size": 100}, r"--algo\.batch-size 256 is larger than --algo\.buffer-size 100"),
        ({"report_interval": 0}, r"--algo\.report-interval 0: must be at least 1"),
        ({"global_steps": 0}, r"--algo\.global-steps 0: must be at least 1"),
    ],
)
def test_what_can_never_learn_is_refused_with_its_numbers(change, problem):
    sac.SACConfig().check()
    sac.SACConfig(global_steps=None).check()
    with pytest.raises(ConfigError, match=problem):
        sac.SACConfig(**change).check()


def test_the_built_in_is_what_other_tests_find():
    assert ALGORITHMS.get_class("sac").__module__ == "plugrl_server.algorithm.sac.sac"
