"""What actor-critic policies share: reading states, and inference that gives what learning sees."""

import copy

import numpy as np
import pytest
import torch
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.gaussian.gaussian_policy import GaussianPolicy
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig


def policy(**changes):
    torch.manual_seed(0)
    return GaussianPolicy(GaussianPolicyConfig(**{"obs_dim": 3, "action_dim": 2, "device": "cpu", **changes}))


def observation(**states):
    n = len(next(iter(states.values())))
    return {"images": {}, "states": {name: np.asarray(value) for name, value in states.items()}, "text": np.full(n, "")}


def test_states_are_read_side_by_side_in_the_order_of_their_names():
    obs = observation(b=[[3.0], [6]], a=[[1.0, 2], [4, 5]])
    observed = policy().observe(obs)
    assert observed.dtype == np.float32
    assert observed.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_chosen_states_are_read_in_the_order_given():
    obs = observation(b=[[3.0]], a=[[1.0, 2]], extra=[[9.0]])
    assert policy(state_keys=("b", "a")).observe(obs).tolist() == [[3, 1, 2]]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", "u1"])
def test_states_of_every_number_type_are_read(dtype):
    assert policy().observe(observation(s=np.array([[1, 2, 3]], dtype))).tolist() == [[1, 2, 3]]


def test_lesson_3_a_float64_beyond_float32_stays_finite():
    assert np.isfinite(policy().observe(observation(s=[[1e300, -1e300, 0]]))).all()


def test_missing_states_and_wrong_widths_are_named():
    assert policy().check_observation(observation(s=np.zeros((1, 3)))) is None
    assert policy().check_observation(observation(s=np.zeros((1, 4)))) == "obs_dim 4, this run has 3"
    assert "lacks arm" in policy(state_keys=("arm",)).check_observation(observation(s=np.zeros((1, 3))))


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("hidden", [(16, 16), (300,)])
def test_inference_gives_what_learning_sees(normalize, hidden):
    """NumPy or torch, the actor's outputs for acting are those of the learner, normaliser included."""
    acting = policy(hidden_sizes=hidden, normalize_observations=normalize)
    acting.update_normalizer(torch.randn(100, 3) * 4 + 2)
    obs = observation(s=np.random.default_rng(0).standard_normal((7, 3)) * 50)
    with torch.no_grad():
        learner = acting.actor(acting.features(torch.from_numpy(acting.observe(obs))))
    np.testing.assert_allclose(acting.actor_outputs(obs), learner.numpy(), atol=1e-5)


def test_rule_5_the_normaliser_moves_only_when_told_and_is_saved():
    first = policy()
    obs = observation(s=np.random.default_rng(0).standard_normal((64, 3)) * 9)
    before = first.actor_outputs(obs)
    for _ in range(5):
        first.get_action_and_runtime_state(obs)
    np.testing.assert_array_equal(first.actor_outputs(obs), before)
    first.update_normalizer(torch.from_numpy(first.observe(obs)))
    assert not np.array_equal(first.actor_outputs(obs), before)
    second = policy()
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.normalizer.count == 64
    np.testing.assert_array_equal(second.actor_outputs(obs), first.actor_outputs(obs))


def test_normalisation_can_be_left_out():
    plain = policy(normalize_observations=False)
    plain.update_normalizer(torch.randn(10, 3))
    assert plain.normalizer.count == 0
    features = torch.tensor([[1e6, 0, 0]])
    assert torch.equal(plain.features(features), features)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_values_are_float32_whatever_the_weights(dtype):
    narrow = policy(dtype=dtype)
    value = narrow.value(narrow.features(torch.randn(4, 3)))
    assert value.shape == (4,)
    assert value.dtype == torch.float32
    assert next(narrow.parameters()).dtype == getattr(torch, dtype)


def test_a_copy_of_a_policy_is_independent():
    first = policy()
    obs = observation(s=[[1.0, 2, 3]])
    expected = first.actor_outputs(obs)
    second = copy.deepcopy(first)
    with torch.no_grad():
        first.actor[0].weight.zero_()
    np.testing.assert_array_equal(second.actor_outputs(obs), expected)


def test_missing_dimensions_are_refused_with_the_flag():
    with pytest.raises(ConfigError, match=r"needs --policy\.obs-dim"):
        policy(obs_dim=None)
