"""lerobot's diffusion policy as a chain (with a fake of lerobot)."""

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.diffusion.cosine_schedule import posterior
from plugrl_server.policy.lerobot.lerobot_diffusion_policy import LeRobotDiffusionPolicy, spaced_posterior
from plugrl_server.policy.lerobot.lerobot_diffusion_policy_config import LeRobotDiffusionPolicyConfig
from plugrl_server.testing import PolicyContract

SPACE = BoxSpace((2,), np.dtype("f4"), np.full(2, -5, "f4"), np.full(2, 5, "f4"))


def policy(folder, **changes):
    known = {"obs_dim": 3, "action_dim": 2, "state_keys": ("arm", "base"), "image_shapes": {}, "action_space": SPACE}
    options = {"policy_path": folder, "device": "cpu", "critic_hidden_sizes": (8,), **known, **changes}
    return LeRobotDiffusionPolicy(LeRobotDiffusionPolicyConfig(**options))


@pytest.fixture
def chain(fake_lerobot):
    return policy(fake_lerobot(kind="diffusion"), num_steps=5, min_sampling_std=1e-3)


def test_the_posterior_of_a_whole_cosine_schedule_is_the_cosine_schedule_s():
    ours = posterior(12)
    alphas_cumprod = (1 / ours.of_state**2)[::-1]
    for mine, theirs in zip(ours, spaced_posterior(alphas_cumprod, np.arange(12)[::-1]), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def test_chains_are_of_the_whole_horizon_and_the_first_actions_are_sent_in_lerobot_s_units(chain, obs):
    chain.deterministic = True
    actions, state = chain.get_action_and_runtime_state(obs)
    assert (chain.action_horizon, chain.num_steps) == (4, 5)
    assert (actions.shape, state["chain"].shape) == ((2, 4, 2), (2, 6, 6, 2))
    np.testing.assert_allclose(actions, np.clip(10 * state["chain"][:, -1, :4] + 1, -5, 5), rtol=1e-5)


def test_a_step_is_the_posterior_of_lerobot_s_schedule(chain, obs):
    condition = chain.condition(chain.features(chain.observe(obs)))
    assert condition.tolist() == [[1, 2, 5], [3, 4, 6]]
    x = torch.randn(2, 6, 2)
    mean, std = chain.denoise_step(condition, x, torch.tensor([0, 4]))
    signal = chain.model.noise_scheduler.alphas_cumprod[torch.tensor([8, 0])][:, None, None]
    before = torch.tensor([float(chain.model.noise_scheduler.alphas_cumprod[6]), 1.0])[:, None, None]
    noise = chain.model.unet(x, None, condition)
    denoised = ((x - (1 - signal).sqrt() * noise) / signal.sqrt()).clamp(-1, 1)
    alpha = signal / before
    expected = (before.sqrt() * (1 - alpha) * denoised + alpha.sqrt() * (1 - before) * x) / (1 - signal)
    torch.testing.assert_close(mean, expected, atol=1e-5, rtol=1e-4)
    assert std[1].item() == pytest.approx(1e-3)


def test_predicting_the_sample_is_predicting_the_noise_in_other_words(fake_lerobot, obs):
    sampling = policy(
        fake_lerobot(kind="diffusion", prediction_type="sample", clip_sample=False), min_sampling_std=1e-3
    )
    condition, x = sampling.condition(sampling.features(sampling.observe(obs))), torch.randn(2, 6, 2)
    k = torch.tensor([3, 3])
    of_state, of_noise = sampling._posterior[k].unbind(1)[:2]
    denoised = of_state * x - of_noise * sampling.predict_noise(condition, x, k)
    torch.testing.assert_close(denoised, sampling.model.unet(x, None, condition), atol=1e-4, rtol=1e-4)


def test_every_parameter_is_the_actor_s_or_the_critic_s_and_learns(chain, obs):
    features = chain.features(chain.observe(obs))
    mean, _ = chain.denoise_step(chain.condition(features), torch.randn(2, 6, 2), torch.tensor([1, 2]))
    (mean.sum() + chain.value(features).sum()).backward()
    parts = [*chain.actor_parameters(), *chain.critic_parameters()]
    assert {id(part) for part in parts} == {id(parameter) for parameter in chain.parameters()}
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in chain.actor_parameters())


def test_inputs_have_to_be_those_that_lerobot_reads(fake_lerobot):
    folder = fake_lerobot(kind="diffusion", environment=True, images=["top"])
    with pytest.raises(ConfigError, match=r"images none, this policy reads .*top"):
        policy(folder, obs_dim=5)
    with pytest.raises(ConfigError, match=r"obs_dim 3, this policy reads 5: .*--policy\.state-keys"):
        policy(folder)


def test_what_does_not_fit_is_refused_with_both_sides(fake_lerobot):
    for options, change, words in (
        ({"kind": "act"}, {}, "is a policy of type act, expected diffusion"),
        ({"kind": "diffusion", "n_obs_steps": 2}, {}, "this one reads 2"),
        ({"kind": "diffusion"}, {"action_dim": 3, "action_space": None}, "action_dim 3, this policy has 2"),
        ({"kind": "diffusion"}, {"action_horizon": 7}, r"--policy\.action-horizon 7: this policy's horizon is 6"),
    ):
        with pytest.raises(ConfigError, match=words):
            policy(fake_lerobot(**options), **change)


class TestContract(PolicyContract):
    """What every policy keeps to."""

    @pytest.fixture(autouse=True)
    def folder(self, fake_lerobot):
        self.saved = fake_lerobot(kind="diffusion")

    def make_policy(self):
        sizes = {"num_steps": 3, "critic_hidden_sizes": (8,), "device": "cpu"}
        return LeRobotDiffusionPolicy(self.sized(LeRobotDiffusionPolicyConfig(policy_path=self.saved, **sizes)))
