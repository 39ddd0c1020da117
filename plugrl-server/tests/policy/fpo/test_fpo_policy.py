"""The FPO policy: its networks by hand, states and images, narrow weights."""

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.fpo.fpo_policy import FPOPolicy
from plugrl_server.policy.fpo.fpo_policy_config import FPOPolicyConfig


def make(**changes):
    seed_everything(0)
    sizes = {"obs_dim": 3, "action_dim": 2, "device": "cpu", "critic_hidden_sizes": (16, 16)}
    return FPOPolicy(FPOPolicyConfig(**{**sizes, **changes}))


def silu(x):
    return x / (1 + np.exp(-x))


def by_hand(network, inputs):
    layers = [layer for layer in network if hasattr(layer, "weight")]
    for i, layer in enumerate(layers):
        inputs = inputs @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()
        if i < len(layers) - 1:
            inputs = silu(inputs)
    return inputs


def test_the_velocity_is_the_network_of_observation_point_and_time_times_the_scale():
    policy = make(action_horizon=2)
    rng = np.random.default_rng(0)
    features, x, t = rng.standard_normal((5, 3)), rng.standard_normal((5, 2, 2)), rng.random(5)
    angles = t[:, None] * np.array([1, 2, 4, 8])
    inputs = np.concatenate([features, x.reshape(5, 4), np.cos(angles), np.sin(angles)], 1)
    expected = 0.25 * by_hand(policy.actor, inputs).reshape(5, 2, 2)
    with torch.no_grad():
        velocity = policy.velocity(*(torch.from_numpy(part).float() for part in (features, x, t)))
    np.testing.assert_allclose(velocity, expected, atol=1e-5)


def test_the_chunk_is_where_the_euler_steps_end():
    policy = make(num_steps=4)
    policy.deterministic = True
    obs = policy.fake_obs(2)
    obs["states"] = {"state": np.array([[1.0, 2, 3], [-1, 0, 1]])}
    features = torch.from_numpy(policy.observe(obs))
    x = torch.zeros(2, 1, 2)
    with torch.no_grad():
        for t in (1.0, 0.75, 0.5, 0.25):
            x = x - 0.25 * policy.velocity(features, x, torch.full((2,), t))
    actions, state = policy.get_action_and_runtime_state(obs)
    np.testing.assert_allclose(actions, x, atol=1e-6)
    np.testing.assert_array_equal(state["chain"][:, -1], actions)


def test_at_first_chunks_are_spread_like_the_noise_and_sent_within_bounds():
    bound = np.array([2, 0.5], np.float32)
    policy = make(action_space=BoxSpace((2,), bound.dtype, -bound, bound))
    actions, state = policy.get_action_and_runtime_state(policy.fake_obs(2000))
    chunks = state["chain"][:, -1]
    assert chunks.std((0, 1)) == pytest.approx([1, 1], abs=0.25)
    np.testing.assert_allclose(actions, chunks.clip(-1, 1) * bound, rtol=1e-6)


def test_images_are_encoded_once_for_a_chunk_and_apart_for_the_critic():
    policy = make(image_shapes={"eye": (36, 36, 3)}, image_keys=("eye",))
    calls = []
    policy.encoder.register_forward_hook(lambda *_: calls.append(1))
    obs = policy.fake_obs(2)
    obs["images"]["eye"][1] = 255
    policy.deterministic = True
    actions, _ = policy.get_action_and_runtime_state(obs)
    assert len(calls) == 1
    assert not np.array_equal(actions[0], actions[1])
    value = policy.value(policy.features(policy.observe(obs)))
    assert value[0] != value[1]
    torch.autograd.backward(value.sum())
    assert all(parameter.grad is None for parameter in policy.actor_parameters())
    assert all(parameter.grad is not None for parameter in policy.critic_parameters())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_weights_flow_in_float32(dtype):
    policy = make(dtype=dtype)
    actions, state = policy.get_action_and_runtime_state(policy.fake_obs(3))
    assert state["chain"].dtype == np.float32
    assert np.isfinite(actions).all()
    features = policy.features(policy.observe(policy.fake_obs(3)))
    assert policy.value(features).dtype == torch.float32


def test_lost_weights_give_nan_actions():
    policy = make()
    with torch.no_grad():
        policy.actor[0].weight.fill_(torch.nan)
    assert np.isnan(policy.get_action_and_runtime_state(policy.fake_obs(2))[0]).all()


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_inference_in_numpy_samples_what_torch_would(noise):
    quick, plain = make(exploration_noise=noise), make(exploration_noise=noise)
    plain._numpy_flow.usable = lambda rows: False
    assert quick._numpy_flow.usable(5)
    obs = quick.fake_obs(5)
    obs["states"]["state"] += np.arange(5)[:, None]
    chains = [policy.get_action_and_runtime_state(obs)[1]["chain"] for policy in (quick, plain)]
    np.testing.assert_allclose(*chains, atol=1e-5)
    assert chains[0].shape == (5, 11, 1, 2)


def test_frozen_early_steps_run_their_own_weights():
    policy = make()
    obs = policy.fake_obs(3)
    policy.deterministic = True
    before = policy.get_action_and_runtime_state(obs)[1]["chain"]
    policy.freeze_early_steps(6)
    with torch.no_grad():
        policy.actor[-1].bias.fill_(2.0)
    after = policy.get_action_and_runtime_state(obs)[1]["chain"]
    np.testing.assert_allclose(after[:, :7], before[:, :7], atol=1e-5)
    assert not np.allclose(after[:, 7], before[:, 7], atol=1e-2)
