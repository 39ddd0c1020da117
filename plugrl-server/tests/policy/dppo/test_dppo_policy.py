"""The diffusion MLP as a policy."""

import numpy as np
import pytest
import torch
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.dppo.dppo_policy import DPPOPolicy
from plugrl_server.policy.dppo.dppo_policy_config import DPPOPolicyConfig, DPPOPolicySmallConfig

SIZES = {"obs_dim": 3, "action_dim": 2, "device": "cpu"}


def make(**changes):
    seed_everything(0)
    return DPPOPolicy(DPPOPolicySmallConfig(**{**SIZES, "action_horizon": 4, **changes}))


def test_the_default_is_built_and_acts():
    policy = DPPOPolicy(DPPOPolicyConfig(**SIZES))
    actions, state = policy.get_action_and_runtime_state(policy.fake_obs(2))
    assert actions.shape == (2, 4, 2)
    assert state["chain"].shape == (2, 21, 4, 2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_noise_and_values_are_float32_of_any_weights(dtype):
    policy = make(dtype=dtype)
    features = policy.features(np.ones((6, 3), np.float32))
    noise = policy.predict_noise(policy.condition(features), torch.randn(6, 4, 2), torch.arange(6) % 5)
    assert (noise.shape, noise.dtype) == ((6, 4, 2), torch.float32)
    assert (policy.value(features).shape, policy.value(features).dtype) == ((6,), torch.float32)


def test_noise_depends_on_observation_state_and_step():
    policy = make()
    features, x, k = torch.randn(1, 3), torch.randn(1, 4, 2), torch.tensor([1])
    noise = policy.predict_noise(features, x, k)
    for changed in ((features + 1, x, k), (features, x + 1, k), (features, x, k + 1)):
        assert not torch.allclose(policy.predict_noise(*changed), noise)


def test_actor_and_critic_share_no_parameter_and_leave_none_out():
    policy = make(obs_dim=2, image_keys=("eye",), image_shapes={"eye": (40, 40, 3)})
    actor, critic = set(policy.actor_parameters()), set(policy.critic_parameters())
    assert not actor & critic
    assert actor | critic == set(policy.parameters())


def test_it_reads_images_and_encodes_them_once_a_chain():
    policy = make(obs_dim=2, image_keys=("eye",), image_shapes={"eye": (40, 40, 3)})
    calls = []
    policy.encoder.register_forward_hook(lambda *_: calls.append(1))
    policy.freeze_early_steps(2)
    obs = policy.fake_obs(3)
    obs["images"]["eye"] = np.random.default_rng(0).integers(0, 255, (3, 40, 40, 3), np.uint8)
    one, other = policy.condition(policy.features(policy.observe(obs)))[:2]
    assert not torch.allclose(one, other)
    calls.clear()
    policy.get_action_and_runtime_state(obs)
    assert len(calls) == 2  # by the frozen weights, and by the others
