"""SAC with `--algo.concurrent` keeps the contract too.

Only the clauses that its learner's own process could break run here: each starts processes, which takes seconds.
"""

import pytest
from plugrl_server.algorithm.sac.sac import SAC
from plugrl_server.algorithm.sac.sac_config import SACConfig
from plugrl_server.policy.sac.sac_policy import SACPolicy
from plugrl_server.policy.sac.sac_policy_config import SACPolicyConfig
from plugrl_server.testing import AlgorithmContract

# No checkpoints on the way: each waits for the learner and takes its news over, so that there might be no learn step.
SIZES = {"learning_starts": 8, "batch_size": 8, "buffer_size": 64, "report_interval": 1, "save_interval": 10_000}


class Concurrent(AlgorithmContract):
    learns_by_frames = False  # newer weights are a learn step, and they come when the other process has them

    def __init__(self):
        self.made = []

    def make_policy(self):
        return SACPolicy(self.sized(SACPolicyConfig(device="cpu", hidden_sizes=(16, 16))))

    def make_algorithm(self):
        self.made.append(SAC(SACConfig(global_steps=10_000, concurrent=True, **SIZES), self.make_policy()))
        return self.made[-1]


@pytest.fixture
def contract():
    """The contract; ends the processes of the algorithms it made."""
    contract = Concurrent()
    yield contract
    for algorithm in contract.made:
        algorithm.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "clause",
    ["frames_are_stored_by_the_rule", "it_stops_at_global_steps", "a_checkpoint_restores_every_part"],
)
def test_a_learner_in_a_process_of_its_own_keeps_the_contract(contract, clause):
    getattr(contract, f"test_{clause}")()
    assert all(algorithm.learner.process.is_alive() for algorithm in contract.made)
