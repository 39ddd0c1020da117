"""The squashed Gaussian: densities by the change of variables, actions in bounds, targets that do not learn."""

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.sac.sac_policy import LOG_STD_MAX, LOG_STD_MIN, SACPolicy, log_std_of, squashed
from plugrl_server.policy.sac.sac_policy_config import SACPolicyConfig


def box(low, high, shape=None, dtype="f4"):
    low, high = np.array(low, dtype), np.array(high, dtype)
    shape = low.shape if shape is None else shape
    return BoxSpace(shape, np.dtype(dtype), low.reshape(shape), high.reshape(shape))


def make_policy(**changes):
    torch.manual_seed(0)
    return SACPolicy(
        SACPolicyConfig(**{"obs_dim": 3, "action_dim": 2, "device": "cpu", "hidden_sizes": (32, 32), **changes})
    )


def observation(n, seed=1):
    states = np.random.default_rng(seed).standard_normal((n, 3))
    return {"images": {}, "states": {"s": states}, "text": np.full(n, "")}


# Density ---------------------------------------------------------------------------------------------------------


def test_the_log_density_is_the_change_of_variables():
    """log N(u) - log |da/du|, the slope of tanh taken by autograd in double precision."""
    torch.manual_seed(0)
    mean, log_std, noise = 0.7 * torch.randn(3, 50, 4, dtype=torch.float64)
    action, log_prob = squashed(mean, log_std, noise)
    u = (mean + log_std.exp() * noise).requires_grad_()
    (slope,) = torch.autograd.grad(torch.tanh(u).sum(), u)
    expected = (torch.distributions.Normal(mean, log_std.exp()).log_prob(u) - slope.log()).sum(-1)
    torch.testing.assert_close(action, torch.tanh(u))
    torch.testing.assert_close(log_prob, expected)


def test_the_density_integrates_to_1():
    mean, log_std = torch.tensor([[0.4]]), torch.tensor([[-0.3]])
    u = torch.linspace(-12, 12, 200_001)[:, None]
    action, log_prob = squashed(mean, log_std, (u - mean) / log_std.exp())
    assert torch.trapezoid(log_prob.exp().double(), action[:, 0].double()).item() == pytest.approx(1, abs=1e-3)


def test_far_out_the_log_density_is_finite_and_has_a_gradient():
    mean = torch.tensor([[-40.0, 40.0]], requires_grad=True)
    action, log_prob = squashed(mean, torch.zeros(1, 2), torch.zeros(1, 2))
    log_prob.sum().backward()
    assert action.tolist() == [[-1, 1]]
    # log(1 - tanh(u)^2) -> 2 (log 2 - |u|): each number gives |u| twice
    assert log_prob.item() == pytest.approx(2 * (80 - 2 * np.log(2)) - np.log(2 * np.pi), rel=1e-6)
    torch.testing.assert_close(mean.grad, torch.tensor([[-2.0, 2.0]]))


def test_deviations_stay_between_their_bounds():
    log_std = log_std_of(torch.tensor([-50.0, 0.0, 50.0]))
    torch.testing.assert_close(log_std, torch.tensor([LOG_STD_MIN, (LOG_STD_MIN + LOG_STD_MAX) / 2, LOG_STD_MAX]))


# Acting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [1, 3])
def test_actions_have_the_declared_shape_and_dtype_and_lie_in_the_bounds(horizon):
    space = box([-2, 10], [2, 30], shape=(2, 1), dtype="f8")
    policy = make_policy(action_horizon=horizon, action_space=space)
    actions, runtime_state = policy.get_action_and_runtime_state(observation(500))
    assert actions.shape == (500, horizon, 2, 1)
    assert actions.dtype == np.float64
    sample = runtime_state["sample"]
    assert sample.shape == (500, horizon * 2)
    assert sample.dtype == np.float32
    assert np.abs(sample).max() <= 1
    scaled = sample.reshape(500, horizon, 2) * [2, 10] + [0, 20]
    np.testing.assert_allclose(actions[..., 0], scaled, atol=1e-5)


def test_numbers_without_two_bounds_are_sent_as_they_are():
    policy = make_policy(action_space=box([-np.inf, -4], [np.inf, 4]))
    actions, runtime_state = policy.get_action_and_runtime_state(observation(20))
    np.testing.assert_allclose(actions[:, 0], runtime_state["sample"] * [1, 4], rtol=1e-6)


def test_deterministic_is_tanh_of_the_mean():
    policy = make_policy()
    policy.deterministic = True
    obs = observation(6)
    sample = policy.get_action_and_runtime_state(obs)[1]["sample"]
    with torch.no_grad():
        mean = policy.actor(policy.features(policy.observe(obs)))[:, :2]
    np.testing.assert_allclose(sample, np.tanh(mean.numpy()), atol=1e-6)


@pytest.mark.parametrize("sizes", [(32, 32), (300,)])
def test_acting_and_learning_sample_the_same_distribution(sizes):
    """NumPy (narrow) or torch (wide) while acting, torch while learning: the same noise, the same chunk."""
    policy = make_policy(hidden_sizes=sizes)
    obs = observation(64)
    policy.rng = np.random.default_rng(5)
    acted = policy.get_action_and_runtime_state(obs)[1]["sample"]
    noise = torch.from_numpy(np.random.default_rng(5).standard_normal((64, 2), dtype=np.float32))
    with torch.no_grad():
        learned, _ = policy.sample(policy.encode(policy.features(policy.observe(obs))), noise)
    np.testing.assert_allclose(acted, learned.numpy(), atol=1e-6)


def test_uniform_actions_fill_the_bounds():
    policy = make_policy(action_horizon=2, action_space=box([-2, 0], [2, 1]))
    actions, runtime_state = policy.uniform_action_and_runtime_state(5000)
    assert actions.shape == (5000, 2, 2)
    assert runtime_state["sample"].dtype == np.float32
    flat = actions.reshape(-1, 2)
    np.testing.assert_allclose(np.quantile(flat, [0, 0.25, 0.5, 1], axis=0)[:, 0], [-2, -1, 0, 2], atol=0.08)
    np.testing.assert_allclose(np.quantile(flat, [0, 0.25, 0.5, 1], axis=0)[:, 1], [0, 0.25, 0.5, 1], atol=0.02)


def test_lesson_3_lost_weights_give_nan_actions():
    policy = make_policy(action_space=box([-1, -1], [1, 1]))
    with torch.no_grad():
        policy.actor[0].weight.fill_(torch.nan)
    assert np.isnan(policy.get_action_and_runtime_state(observation(2))[0]).all()


def test_a_space_declared_later_is_adopted_or_refused():
    policy = make_policy()
    policy.adopt_action_space(box([-5, -5], [5, 5]))
    assert np.abs(policy.get_action_and_runtime_state(observation(100))[0]).max() > 1
    with pytest.raises(ValueError, match="action_dim 3, this run has 2"):
        policy.adopt_action_space(box([0, 0, 0], [1, 1, 1]))
    with pytest.raises(ValueError, match=r"needs a Box action space, got Discrete\(2\)"):
        policy.adopt_action_space(DiscreteSpace(2))


def test_missing_dimensions_are_refused_with_the_flag():
    with pytest.raises(ConfigError, match=r"needs --policy\.action-dim"):
        make_policy(action_dim=None)


# Networks --------------------------------------------------------------------------------------------------------


def test_targets_begin_equal_and_are_no_trained_parameters():
    policy = make_policy()
    pairs = list(zip(policy.critic_parameters(), policy.target_parameters(), strict=True))
    assert pairs
    for parameter, target in pairs:
        assert torch.equal(parameter, target)
        assert parameter.requires_grad
        assert not target.requires_grad


def test_everything_that_is_learned_is_in_the_state_dict():
    names = make_policy().state_dict().keys()
    assert "log_alpha" in names
    for part in ("actor", "critic", "target_critic", "normalizer"):
        assert any(name.startswith(f"{part}.") for name in names), part


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_weights_have_a_float32_temperature(dtype):
    policy = make_policy(dtype=dtype)
    assert policy.actor[0].weight.dtype == getattr(torch, dtype)
    assert policy.log_alpha.dtype == torch.float32
    features = policy.features(policy.observe(observation(4)))
    chunks, log_prob = policy.sample(policy.encode(features), torch.zeros(4, 2))
    values = policy.q_values(policy.encode(features), chunks)
    assert {tensor.dtype for tensor in (chunks, log_prob, values)} == {torch.float32}


def test_images_are_encoded_by_the_critic_s_encoder():
    policy = make_policy(image_keys=("eye",), image_shapes={"eye": (36, 36, 3)}, image_encoder="impala-small")
    obs = observation(5) | {"images": {"eye": np.random.default_rng(0).integers(0, 255, (5, 36, 36, 3), np.uint8)}}
    actions, runtime_state = policy.get_action_and_runtime_state(obs)
    assert actions.shape == (5, 1, 2)
    features = policy.features(policy.observe(obs))
    chunks = torch.from_numpy(runtime_state["sample"])
    values = policy.q_values(policy.encode(features), chunks)
    torch.testing.assert_close(policy.target_q_values(features, chunks), values)
    values.sum().backward()
    assert all(parameter.grad is not None for parameter in policy.critic_parameters())
    assert sum(1 for _ in policy.critic_parameters()) > len(list(policy.critic.parameters()))
