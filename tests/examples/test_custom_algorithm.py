"""`examples/custom_algorithm`: it keeps the contract, its mathematics is right, and all three ways to use it train."""

from types import SimpleNamespace

import numpy as np
import pytest
from plugrl_protocol.spaces import DiscreteSpace
from plugrl_server.testing import AlgorithmContract

from tests.examples import sources

reinforce = sources.load("custom_algorithm", "reinforce")


class TestOnGaussian(AlgorithmContract):
    def make_algorithm(self):
        return reinforce.Reinforce(reinforce.ReinforceConfig(buffer_size=16, save_interval=40), self.make_policy())


class TestOnCategorical(TestOnGaussian):
    action_space = DiscreteSpace(3)


@pytest.mark.parametrize(
    ("successor", "earned"),
    [
        ([-1, -1, -1], [1, 2, 4]),
        ([1, 2, -1], [1 + 0.5 * (2 + 0.5 * 4), 2 + 0.5 * 4, 4]),
        ([2, -1, -1], [1 + 0.5 * 4, 2, 4]),
    ],
    ids=["three episodes", "one chain", "two environments in turn"],
)
def test_rewards_to_go_follow_the_chains(successor, earned):
    rows = np.array(successor)
    stored = SimpleNamespace(reward=np.array([1, 2, 4], np.float32), successor=rows, cut=rows < 0)
    assert reinforce.rewards_to_go(stored, 0.5).tolist() == earned


def test_what_is_earned_ends_with_its_episode_and_with_the_learn_step():
    contract = TestOnGaussian()
    with contract.rehearsal(num_envs=1, length=3) as run:
        for _ in range(15):
            run.answer(run.ask())
        stored = run.algorithm.rollout.stored()
        earned = reinforce.rewards_to_go(stored, 1.0)
        assert earned[:3] == pytest.approx(np.cumsum(stored.reward[:3][::-1])[::-1])
        assert earned[3:6] == pytest.approx(np.cumsum(stored.reward[3:6][::-1])[::-1])
        run.exchange()
        assert run.learned_at == [16]
        run.answer(run.ask())
        assert run.algorithm.rollout.stored().successor.tolist() == [-1]


def test_it_learns_a_bandit():
    """The tiny environment pays for actions near the first state: what an episode earns must rise."""
    with TestOnGaussian().rehearsal(num_envs=8, length=1) as run:
        run.algorithm.optimizer.param_groups[0]["lr"] = 0.05
        for _ in range(160):
            run.exchange()
    earned = [metrics["rollout/reward"] for metrics in run.metrics]
    assert np.mean(earned[-20:]) > np.mean(earned[:20]) + 0.1
