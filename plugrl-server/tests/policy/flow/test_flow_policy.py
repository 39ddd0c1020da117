"""Euler steps along a velocity field that is known."""

import numpy as np
import pytest
import torch
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.flow.flow_policy import FlowPolicy
from plugrl_server.policy.flow.flow_policy_config import FlowPolicyConfig
from torch import nn


class Straight(FlowPolicy):
    """Carries any noise to one chunk along straight paths: an outsider writes `velocity`, `value` and a critic."""

    def __init__(self, config):
        super().__init__(config)
        self.target = nn.Parameter(torch.full((), 0.25))
        self.critic = nn.Linear(self.obs_dim, 1)
        self.times = []
        self.to(self.device, self.dtype)

    def velocity(self, features, x, t):
        self.times.append(t)
        return (x - self.target) / t[:, None, None]

    def value(self, features):
        return self.critic(features).squeeze(-1).float()


def make(**changes):
    seed_everything(0)
    sizes = {"obs_dim": 3, "action_dim": 2, "action_horizon": 4, "num_steps": 5, "device": "cpu"}
    return Straight(FlowPolicyConfig(**{**sizes, **changes}))


def chain_of(policy, n=3):
    return policy.get_action_and_runtime_state(policy.fake_obs(n))[1]["chain"]


def test_the_times_go_from_noise_at_1_towards_the_chunk_at_0():
    policy = make()
    chain_of(policy)
    assert [t.tolist() for t in policy.times] == [pytest.approx([time] * 3) for time in (1, 0.8, 0.6, 0.4, 0.2)]


def test_a_straight_flow_is_followed_exactly():
    """x_t = t eps + (1 - t) a after every step, so that the chain ends at a."""
    chain = chain_of(make(), 10)
    for k in range(6):
        t = 1 - k / 5
        np.testing.assert_allclose(chain[:, k], t * chain[:, 0] + (1 - t) * 0.25, atol=1e-6)


def test_a_step_is_the_velocity_over_the_number_of_steps():
    policy = make()
    x, k = torch.randn(4, 4, 2), torch.tensor([0, 1, 3, 4])
    with torch.no_grad():
        mean, std = policy.denoise_step(None, x, k)
    expected = x - (x - 0.25) / (1 - k / 5).view(-1, 1, 1) / 5
    torch.testing.assert_close(mean, expected)
    assert std == 0


def test_exploration_adds_its_variance_along_the_flow():
    """K steps of 0.6 / sqrt(K) each: without a velocity, together a deviation of 0.6."""
    policy = make(exploration_noise=0.6, action_horizon=1, num_steps=9)
    policy.velocity = lambda features, x, t: torch.zeros_like(x)
    assert policy.denoise_step(None, torch.zeros(1, 1, 2), torch.tensor([3]))[1].item() == pytest.approx(0.2)
    chain = chain_of(policy, 4000)
    assert (chain[:, -1] - chain[:, 0]).std() == pytest.approx(0.6, rel=0.03)


def test_deterministic_starts_from_zero_and_explores_nothing():
    policy = make(exploration_noise=0.6)
    policy.deterministic = True
    chain = chain_of(policy)
    assert (chain[:, 0] == 0).all()
    np.testing.assert_allclose(chain[:, -1], 0.25, atol=1e-6)


def test_parameters_are_the_critic_s_or_the_actor_s():
    policy = make()
    critic, actor = map(list, (policy.critic_parameters(), policy.actor_parameters()))
    assert {id(parameter) for parameter in critic} == {id(policy.critic.weight), id(policy.critic.bias)}
    assert [id(parameter) for parameter in actor] == [id(policy.target)]
