"""SAC and its policy keep the contracts that an outsider's must keep."""

from typing import ClassVar

from plugrl_server.algorithm.sac.sac import SAC
from plugrl_server.algorithm.sac.sac_config import SACConfig
from plugrl_server.policy.sac.sac_policy import SACPolicy
from plugrl_server.policy.sac.sac_policy_config import SACPolicyConfig
from plugrl_server.testing import AlgorithmContract, PolicyContract

SMALL = SACConfig(
    global_steps=10_000, learning_starts=8, batch_size=8, buffer_size=64, report_interval=1, save_interval=20
)


class TestSAC(AlgorithmContract):
    def make_policy(self):
        return SACPolicy(self.sized(SACPolicyConfig(device="cpu", hidden_sizes=(16, 16))))

    def make_algorithm(self):
        return SAC(SMALL, self.make_policy())


class TestSACPolicy(PolicyContract):
    def make_policy(self):
        return SACPolicy(self.sized(SACPolicyConfig(device="cpu")))


class TestSACPolicyOverTwoStates(TestSACPolicy):
    states: ClassVar = {"joints": 4, "goal": 2}
