"""The Gaussian policy: what is sent is clipped, what is stored is not, and densities are exact."""

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.gaussian.gaussian_policy import GaussianPolicy
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig


def box(shape=(2,), bound=0.5, dtype="f4"):
    return BoxSpace(shape, np.dtype(dtype), np.full(shape, -bound, dtype), np.full(shape, bound, dtype))


def policy(**changes):
    torch.manual_seed(0)
    return GaussianPolicy(GaussianPolicyConfig(**{"obs_dim": 3, "action_dim": 2, "device": "cpu", **changes}))


def observation(n):
    states = np.random.default_rng(1).standard_normal((n, 3))
    return {"images": {}, "states": {"s": states}, "text": np.full(n, "")}


@pytest.mark.parametrize("horizon", [1, 3])
def test_actions_have_the_declared_shape_and_dtype(horizon):
    acting = policy(action_horizon=horizon, action_space=box((2, 1), dtype="f8"))
    actions, runtime_state = acting.get_action_and_runtime_state(observation(5))
    assert actions.shape == (5, horizon, 2, 1)
    assert actions.dtype == np.float64
    assert runtime_state["sample"].shape == (5, horizon * 2)


def test_what_is_sent_is_clipped_and_what_is_stored_is_not():
    actions, runtime_state = policy(action_space=box()).get_action_and_runtime_state(observation(200))
    sample = runtime_state["sample"]
    assert np.abs(actions).max() == 0.5
    assert np.abs(sample).max() > 1
    np.testing.assert_array_equal(actions[:, 0], np.clip(sample, -0.5, 0.5))


def test_without_bounds_the_sample_is_sent():
    actions, runtime_state = policy().get_action_and_runtime_state(observation(4))
    np.testing.assert_array_equal(actions.reshape(4, 2), runtime_state["sample"])


def test_samples_have_the_mean_of_the_actor_and_the_free_deviation():
    acting = policy(initial_log_std=-1.0)
    obs = observation(1)
    obs["states"] = {"s": np.repeat(obs["states"]["s"], 40_000, 0)}
    obs["text"] = np.full(40_000, "")
    sample = acting.get_action_and_runtime_state(obs)[1]["sample"]
    np.testing.assert_allclose(sample.mean(0), acting.actor_outputs(obs)[0], atol=0.01)
    np.testing.assert_allclose(sample.std(0), np.exp(-1.0), rtol=0.02)


def test_deterministic_acts_by_the_mean():
    acting = policy()
    acting.deterministic = True
    obs = observation(3)
    np.testing.assert_array_equal(acting.get_action_and_runtime_state(obs)[1]["sample"], acting.actor_outputs(obs))


def test_densities_and_entropies_are_those_of_torch_distributions():
    acting = policy(action_horizon=2)
    with torch.no_grad():
        acting.log_std.copy_(torch.tensor([-1.0, 0.5, 0.0, 0.3]))
    obs = observation(6)
    features = acting.features(torch.from_numpy(acting.observe(obs)))
    sample = torch.from_numpy(acting.get_action_and_runtime_state(obs)[1]["sample"])
    log_prob, entropy, value = acting.evaluate(features, sample)
    reference = torch.distributions.Normal(acting.actor(features), acting.log_std.exp())
    torch.testing.assert_close(log_prob, reference.log_prob(sample).sum(-1))
    torch.testing.assert_close(entropy, reference.entropy().sum(-1))
    torch.testing.assert_close(value, acting.critic(features)[:, 0])


def test_rule_4_the_density_of_a_sample_is_the_one_it_was_drawn_with():
    """What inference drew from (NumPy) and what learning evaluates (torch) agree to 1e-6 in the ratio."""
    acting = policy()
    acting.update_normalizer(torch.randn(50, 3) * 3)
    obs = observation(64)
    acting.deterministic = True
    mean = acting.get_action_and_runtime_state(obs)[1]["sample"]
    acting.deterministic = False
    sample = acting.get_action_and_runtime_state(obs)[1]["sample"]
    drawn = -0.5 * ((sample - mean) ** 2).sum(-1) - np.log(2 * np.pi)
    with torch.no_grad():
        features = acting.features(torch.from_numpy(acting.observe(obs)))
        log_prob = acting.evaluate(features, torch.from_numpy(sample))[0].numpy()
    np.testing.assert_allclose(np.exp(log_prob - drawn), 1, atol=5e-6)


def test_initialisation():
    acting = policy()
    assert acting.log_std.tolist() == [0, 0]
    assert acting.actor[4].weight.norm() < 0.05
    assert acting.critic[4].weight.norm().item() == pytest.approx(1, rel=1e-5)


def test_a_space_declared_later_is_adopted_or_refused():
    acting = policy()
    acting.adopt_action_space(box())
    assert np.abs(acting.get_action_and_runtime_state(observation(100))[0]).max() == 0.5
    with pytest.raises(ValueError, match="action_dim 3, this run has 2"):
        acting.adopt_action_space(box((3,)))
    with pytest.raises(ValueError, match=r"needs a Box action space, got Discrete\(2\)"):
        acting.adopt_action_space(DiscreteSpace(2))


def test_missing_dimensions_are_refused_with_the_flag():
    with pytest.raises(ConfigError, match=r"needs --policy\.action-dim"):
        policy(action_dim=None)


def test_lesson_3_lost_weights_give_nan_actions():
    acting = policy(action_space=box())
    with torch.no_grad():
        acting.actor[0].weight.fill_(torch.nan)
    assert np.isnan(acting.get_action_and_runtime_state(observation(2))[0]).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_weights_act_and_learn_in_float32_outputs(dtype):
    acting = policy(dtype=dtype)
    actions, runtime_state = acting.get_action_and_runtime_state(observation(2))
    assert runtime_state["sample"].dtype == np.float32
    assert np.isfinite(actions).all()
    features = acting.features(torch.from_numpy(acting.observe(observation(2))))
    assert acting.evaluate(features, torch.from_numpy(runtime_state["sample"]))[0].dtype == torch.float32
