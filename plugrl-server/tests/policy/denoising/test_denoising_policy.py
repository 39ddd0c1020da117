"""The chain: sampling, noise, bounds, frozen early steps."""

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace
from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.denoising.denoising_policy import DenoisingPolicy
from plugrl_server.policy.denoising.denoising_policy_config import DenoisingPolicyConfig
from torch import nn


class Adding(DenoisingPolicy):
    """Each step adds a weight times (k + 1), and noise of a tenth."""

    def __init__(self, config):
        super().__init__(config)
        self.weight = nn.Parameter(torch.ones(()))
        self.critic = nn.Linear(self.obs_dim, 1)
        self.conditions = 0
        self.to(self.device, self.dtype)

    def condition(self, features):
        self.conditions += 1
        return super().condition(features)

    def denoise_step(self, features, x, k):
        assert len(features) == len(x) == len(k)
        return x + self.weight.float() * (k + 1).view(-1, 1, 1), torch.full((len(x), 1, 1), 0.1)

    def value(self, features):
        return self.critic(features).squeeze(-1).float()

    def actor_parameters(self):
        return [self.weight]

    def critic_parameters(self):
        return self.critic.parameters()


def make(seed=0, **changes):
    seed_everything(seed)
    sizes = {"obs_dim": 3, "action_dim": 2, "action_horizon": 4, "num_steps": 5, "device": "cpu"}
    return Adding(DenoisingPolicyConfig(**{**sizes, **changes}))


def chain_of(policy, n=3):
    return policy.get_action_and_runtime_state(policy.fake_obs(n))[1]["chain"]


def box(bound, shape=(2,)):
    high = np.full(shape, bound, np.float32)
    return BoxSpace(shape=shape, dtype=high.dtype, low=-high, high=high)


def test_without_noise_the_chain_is_the_means_from_zero():
    policy = make()
    policy.deterministic = True
    chain = chain_of(policy)
    assert chain.shape == (3, 6, 4, 2)
    assert chain.dtype == np.float32
    assert (chain == np.array([0, 1, 3, 6, 10, 15])[:, None, None]).all()
    assert policy.conditions == 1


def test_noise_has_the_given_deviation_and_is_clipped_at_three_of_it():
    policy = make(num_steps=2)
    with torch.no_grad():
        policy.weight.zero_()
    chain = chain_of(policy, 4000)
    first, steps = chain[:, 0], np.diff(chain, axis=1)
    assert abs(first).max() == 3
    assert first.std() == pytest.approx(1, abs=0.02)
    assert abs(steps).max() == pytest.approx(0.3, abs=1e-5)
    assert steps.std() == pytest.approx(0.1, abs=0.002)
    assert abs(np.corrcoef(steps[:, 0].ravel(), steps[:, 1].ravel())[0, 1]) < 0.02


def test_the_runtime_state_keeps_only_the_last_states():
    policy = make()
    whole = chain_of(policy)
    for kept in (0, 2, 5):
        again = make()
        again.kept_steps = kept
        np.testing.assert_array_equal(chain_of(again), whole[:, 5 - kept :])


def test_actions_are_the_last_state_in_the_units_of_the_bounds_and_clipped():
    policy = make(action_space=box(4, (2, 1)), num_steps=1)
    with torch.no_grad():
        policy.weight.fill_(0.3)
    actions, state = policy.get_action_and_runtime_state(policy.fake_obs(50))
    assert actions.shape == (50, 4, 2, 1)
    expected = np.clip(4 * state["chain"][:, -1], -4, 4)
    np.testing.assert_allclose(actions[..., 0], expected, rtol=1e-6)
    assert abs(expected).max() == 4
    inside = actions[abs(expected).max((1, 2)) < 4]
    chunks = state["chain"][:, -1][abs(expected).max((1, 2)) < 4]
    np.testing.assert_allclose(policy.from_actions(inside), chunks, atol=1e-5)


def test_action_spaces_that_do_not_fit_are_refused():
    policy = make()
    with pytest.raises(ValueError, match=r"needs a Box action space, got Discrete\(2\)"):
        policy.adopt_action_space(DiscreteSpace(2, 0))
    with pytest.raises(ValueError, match="action_dim 3, this run has 2"):
        policy.adopt_action_space(box(1, (3,)))


def test_dimensions_are_needed():
    with pytest.raises(ConfigError, match=r"--policy\.action-dim"):
        make(action_dim=None)
    with pytest.raises(ConfigError, match=r"--policy\.obs-dim"):
        make(obs_dim=None)


def test_sampling_draws_from_the_policy_s_own_generator_alone():
    policy = make()
    state, of_torch = policy.rng_state(), torch.get_rng_state()
    first = chain_of(policy)
    assert torch.equal(of_torch, torch.get_rng_state())
    assert not np.array_equal(chain_of(policy), first)
    policy.load_rng_state(state)
    np.testing.assert_array_equal(chain_of(policy), first)


# Frozen early steps ----------------------------------------------------------------------------------------------


def frozen(count):
    policy = make()
    policy.freeze_early_steps(count)
    with torch.no_grad():
        policy.weight.fill_(10)
    policy.deterministic = True
    return policy


def test_early_steps_run_the_weights_they_were_frozen_with():
    assert chain_of(frozen(2))[0, :, 0, 0].tolist() == [0, 1, 3, 33, 73, 123]
    assert chain_of(frozen(0))[0, :, 0, 0].tolist() == [0, 10, 30, 60, 100, 150]
    assert chain_of(frozen(5))[0, :, 0, 0].tolist() == [0, 1, 3, 6, 10, 15]


def test_frozen_weights_are_no_parameters_and_are_saved_with_the_rest():
    policy = frozen(2)
    assert {name for name, _ in policy.named_parameters()} == {"weight", "critic.weight", "critic.bias"}
    other = make()
    other.load_state_dict({name: tensor.clone() for name, tensor in policy.state_dict().items()})
    other.deterministic = True
    assert other.early_steps == 2
    np.testing.assert_array_equal(chain_of(other), chain_of(policy))
    other.load_state_dict(make().state_dict())
    assert other.early_steps == 0
    assert chain_of(other)[0, -1, 0, 0] == 15


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_weights_take_narrow_features_and_leave_the_chain_in_float32(dtype):
    policy = make(dtype=dtype)
    features = policy.features(policy.observe(policy.fake_obs(2)))
    assert features.dtype == policy.weight.dtype == getattr(torch, dtype)
    assert policy.value(features).dtype == torch.float32
    assert chain_of(policy).dtype == np.float32
