"""`examples/custom_algorithm`: it keeps the contract, its mathematics is right, every flag counts, and it learns."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import DiscreteSpace
from plugrl_server.testing import AlgorithmContract

from tests.examples import sources

spo = sources.load("custom_algorithm", "spo")


def made(contract, **options):
    config = spo.SPOConfig(**{"buffer_size": 16, "batch_size": 8, "update_epochs": 2, "save_interval": 2} | options)
    return spo.SPO(config, contract.make_policy())


class TestOnGaussian(AlgorithmContract):
    def make_algorithm(self):
        return made(self)


class TestOnCategorical(TestOnGaussian):
    action_space = DiscreteSpace(3)


class TestOnImages(TestOnCategorical):
    images: ClassVar = {"camera": (36, 36, 3)}


def learned(**options):
    """The algorithm before and after its first learn step: its weights before, and the run."""

    class Made(AlgorithmContract):
        def make_algorithm(self):
            return made(self, **options)

    with Made().rehearsal() as run:
        before = {name: weight.detach().clone() for name, weight in run.algorithm.policy.named_parameters()}
        assert run.until(lambda: run.metrics, 100)
    return before, run


@pytest.mark.parametrize(("advantage", "best"), [(2.0, 1.2), (-2.0, 0.8)])
def test_the_objective_is_best_at_the_end_of_the_interval(advantage, best):
    ratio = torch.linspace(0.5, 1.5, 101)
    value = spo.objective(ratio, torch.full_like(ratio, advantage), 0.2)
    assert ratio[value.argmax()].item() == pytest.approx(best)


def test_before_the_first_step_its_gradient_is_the_policy_gradient():
    advantage = torch.tensor([3.0, -1.0, 0.5])
    log_ratio = torch.zeros(3, requires_grad=True)
    spo.objective(log_ratio.exp(), advantage, 0.2).sum().backward()
    assert log_ratio.grad.tolist() == advantage.tolist()


def test_ratios_are_1_before_the_first_step():
    _, run = learned(batch_size=16, update_epochs=1)
    assert run.metrics[0]["losses/approx_kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("target_kl", "epochs"), [(None, 5), (1e-9, 1)])
def test_target_kl_ends_an_iteration(target_kl, epochs, monkeypatch):
    taken = []
    step = spo.SPO.step
    monkeypatch.setattr(spo.SPO, "step", lambda *given: taken.append(given) or step(*given))
    learned(update_epochs=5, target_kl=target_kl)
    assert len(taken) == 2 * epochs


def test_while_the_critic_warms_up_the_actor_stays():
    before, run = learned(critic_warmup_iterations=1)
    moved = {name for name, weight in run.algorithm.policy.named_parameters() if not weight.equal(before[name])}
    assert moved
    assert all(name.startswith("critic.") for name in moved)


def test_the_critic_has_a_learning_rate_of_its_own():
    _, run = learned(learning_rate=1e-3, critic_learning_rate=1e-2)
    assert [group.learning_rate for group in run.algorithm.optimizer.groups] == [1e-3, 1e-2]


def test_it_learns_a_bandit():
    """The tiny environment pays for actions near the first state: what an episode earns must rise."""

    class Bandit(AlgorithmContract):
        def make_algorithm(self):
            return made(self, buffer_size=64, batch_size=32, update_epochs=10, learning_rate=0.02)

    with Bandit().rehearsal(num_envs=8, length=1) as run:
        for _ in range(320):
            run.exchange()
    earned = [metrics["rollout/reward"] for metrics in run.metrics]
    assert np.mean(earned[-5:]) > np.mean(earned[:5]) + 0.1


@pytest.mark.parametrize(("folder", "module"), [("custom_algorithm", "spo"), ("custom_policy", "beta_policy")])
def test_an_example_stays_short(folder, module):
    lines = (sources.EXAMPLES / folder / f"{module}.py").read_text().splitlines()
    assert len(lines) <= 60
