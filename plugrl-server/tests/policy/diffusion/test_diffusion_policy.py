"""A denoising step of a diffusion, with a network that is known."""

import numpy as np
import pytest
import torch
from plugrl_server.policy.diffusion.cosine_schedule import posterior
from plugrl_server.policy.diffusion.diffusion_policy import DiffusionPolicy
from plugrl_server.policy.diffusion.diffusion_policy_config import DiffusionPolicyConfig
from torch import nn


class Constant(DiffusionPolicy):
    """The noise is a weight times x: what an outsider writes is `predict_noise`, `value` and two lists."""

    def __init__(self, config):
        super().__init__(config)
        self.weight = nn.Parameter(torch.full((), 0.5))
        self.critic = nn.Linear(self.obs_dim, 1)
        self.to(self.device, self.dtype)

    def predict_noise(self, features, x, k):
        return self.weight * x

    def value(self, features):
        return self.critic(features).squeeze(-1)

    def actor_parameters(self):
        return [self.weight]

    def critic_parameters(self):
        return self.critic.parameters()


def make(**changes):
    sizes = {"obs_dim": 1, "action_dim": 2, "action_horizon": 3, "num_steps": 6, "device": "cpu"}
    return Constant(DiffusionPolicyConfig(**{**sizes, **changes}))


@pytest.mark.parametrize("clip", [0.4, 1.0, 50.0])
def test_a_step_is_the_posterior_given_the_clipped_denoised_chunk(clip):
    policy = make(denoised_clip=clip, min_sampling_std=0.2)
    rng = np.random.default_rng(0)
    x, k = rng.standard_normal((8, 3, 2)), rng.integers(0, 6, 8)
    with torch.no_grad():
        mean, std = policy.denoise_step(None, torch.from_numpy(x).float(), torch.from_numpy(k))
    steps = posterior(6)
    for i, step in enumerate(k):
        denoised = np.clip(steps.of_state[step] * x[i] - steps.of_noise[step] * 0.5 * x[i], -clip, clip)
        expected = steps.mean_of_denoised[step] * denoised + steps.mean_of_state[step] * x[i]
        np.testing.assert_allclose(mean[i], expected, rtol=2e-5, atol=1e-6)
        assert std[i].item() == pytest.approx(max(steps.std[step], 0.2))


def test_a_chain_of_true_noise_predictions_ends_at_the_chunk():
    """With x0 known, predicting (x - sqrt(bar) x0) / sqrt(1 - bar) leads there, whatever the start."""
    policy = make(num_steps=20, min_sampling_std=1e-4)
    chunk = torch.linspace(-0.9, 0.9, 6).view(3, 2)
    steps = posterior(20)

    def predict_noise(features, x, k):
        state, noise = (torch.from_numpy(part.copy()).float()[k][:, None, None] for part in steps[:2])
        return (state * x - chunk) / noise

    policy.predict_noise = predict_noise
    policy.rng = np.random.default_rng(0)
    end = policy.get_action_and_runtime_state(policy.fake_obs(5))[1]["chain"][:, -1]
    np.testing.assert_allclose(end, chunk.expand(5, 3, 2), atol=1e-3)
