"""The real thing: tiny policies of lerobot, randomly initialised, saved to a folder and loaded from it.

Skipped where lerobot is not installed, as in the workspace; `.ci/lerobot` runs it in an environment of its own.
"""

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace
from plugrl_server.algorithm.dppo.dppo import DPPO
from plugrl_server.algorithm.dppo.dppo_config import DPPOConfig
from plugrl_server.algorithm.feedback_rows import NO_NODE, FeedbackRows
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.lerobot.lerobot_diffusion_policy import LeRobotDiffusionPolicy, spaced_posterior
from plugrl_server.policy.lerobot.lerobot_diffusion_policy_config import LeRobotDiffusionPolicyConfig
from plugrl_server.policy.lerobot.lerobot_policy import LeRobotPolicy
from plugrl_server.policy.lerobot.lerobot_policy_config import LeRobotPolicyConfig

pytest.importorskip("lerobot", reason="lerobot is not installed: .ci/lerobot runs this file where it is")

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

STATES = {"observation.state": 3, "observation.environment_state": 2}
OBS = {
    "images": {},
    "states": {"arm": np.array([[0.1, 0.2], [0.5, 0.6]]), "base": np.array([[0.3], [0.7]]), "goal": np.ones((2, 2))},
    "text": np.array(["push", ""]),
}
MAP = ("observation.state=arm+base", "observation.environment_state=goal")
SPACE = BoxSpace((2,), np.dtype("f4"), np.full(2, -10, "f4"), np.full(2, 10, "f4"))


def features(states, images=()):
    from lerobot.configs.types import FeatureType, PolicyFeature

    kinds = {"observation.state": FeatureType.STATE, "observation.environment_state": FeatureType.ENV}
    inputs = {name: PolicyFeature(kinds[name], (width,)) for name, width in states.items()}
    inputs |= {name: PolicyFeature(FeatureType.VISUAL, (3, 64, 64)) for name in images}
    return inputs, {"action": PolicyFeature(FeatureType.ACTION, (2,))}


def saved(folder, config):
    """Saves a policy of this configuration and its processors, as lerobot's training does."""
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    torch.manual_seed(0)
    policy = get_policy_class(config.type)(config).eval()
    stats = {
        name: {
            "min": torch.full(feature.shape, -2.0),
            "max": torch.full(feature.shape, 4.0),
            "mean": torch.full((feature.shape[0], 1, 1) if len(feature.shape) == 3 else feature.shape, 0.5),
            "std": torch.full((feature.shape[0], 1, 1) if len(feature.shape) == 3 else feature.shape, 2.0),
        }
        for name, feature in {**config.input_features, **config.output_features}.items()
    }
    pre, post = make_pre_post_processors(config, dataset_stats=stats)
    for part in (policy, pre, post):
        part.save_pretrained(folder)
    return policy, pre, post


def diffusion(states=STATES, images=(), **changes):
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig

    inputs, outputs = features(states, images)
    small = {"down_dims": (8, 16), "n_groups": 4, "diffusion_step_embed_dim": 8, "num_train_timesteps": 10}
    sizes = {"n_obs_steps": 1, "horizon": 8, "n_action_steps": 4}
    return DiffusionConfig(
        **{**small, **sizes, "input_features": inputs, "output_features": outputs, "device": "cpu", **changes}
    )


def act(states=STATES, images=(), **changes):
    from lerobot.policies.act.configuration_act import ACTConfig

    inputs, outputs = features(states, images)
    small = {"dim_model": 16, "n_heads": 2, "dim_feedforward": 16, "n_encoder_layers": 1, "latent_dim": 4}
    sizes = {"chunk_size": 6, "n_action_steps": 5, "n_vae_encoder_layers": 1, "pretrained_backbone_weights": None}
    return ACTConfig(
        **{**small, **sizes, "input_features": inputs, "output_features": outputs, "device": "cpu", **changes}
    )


def lerobot_policy(folder, **changes):
    return LeRobotPolicy(LeRobotPolicyConfig(policy_path=folder, device="cpu", **{"key_map": MAP, **changes}))


def batch_of(obs):
    states = obs["states"]
    return {
        "observation.state": torch.tensor(np.hstack([states["arm"], states["base"]]), dtype=torch.float32),
        "observation.environment_state": torch.tensor(states["goal"], dtype=torch.float32),
        "task": ["push", ""],
    }


# Acting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [act, diffusion])
def test_actions_are_lerobot_s_own_unnormalised_and_within_bounds(tmp_path, make):
    theirs, pre, post = saved(tmp_path, make())
    policy = lerobot_policy(tmp_path)
    policy.adopt_action_space(SPACE)
    torch.manual_seed(5)
    actions, _ = policy.get_action_and_runtime_state(OBS)
    torch.manual_seed(5)
    theirs.reset()
    inputs = {key: value for key, value in pre(batch_of(OBS)).items() if key.startswith("observation.")}
    expected = [post(theirs.select_action(dict(inputs))) for _ in range(policy.action_horizon)]
    np.testing.assert_allclose(actions, np.clip(torch.stack(expected, 1).numpy(), -10, 10), rtol=1e-5, atol=1e-6)
    assert actions.shape == (2, {"act": 5, "diffusion": 4}[make().type], 2)
    assert policy.action_dim == 2


def test_act_is_the_same_for_the_same_observation_whatever_came_before(tmp_path):
    saved(tmp_path, act())
    policy = lerobot_policy(tmp_path, action_horizon=2)
    first = policy.get_action_and_runtime_state(OBS)[0]
    policy.get_action_and_runtime_state(policy.fake_obs(5))
    assert np.array_equal(first, policy.get_action_and_runtime_state(OBS)[0])
    assert first.shape == (2, 2, 2)


@pytest.mark.parametrize("changes", [{}, {"num_inference_steps": 5}], ids=str)
def test_without_noise_it_is_the_chain_that_dppo_fine_tunes_without_noise(tmp_path, changes):
    saved(tmp_path, diffusion(**changes))
    policy, chain = lerobot_policy(tmp_path), fine_tunable(tmp_path)
    for each in (policy, chain):
        each.adopt_action_space(SPACE)
        each.deterministic = True
    actions, _ = policy.get_action_and_runtime_state(OBS)
    np.testing.assert_allclose(actions, chain.get_action_and_runtime_state(OBS)[0], rtol=1e-4, atol=1e-4)
    policy.deterministic = False
    assert not np.allclose(actions, policy.get_action_and_runtime_state(OBS)[0], atol=1e-2)


@pytest.mark.parametrize("make", [act, diffusion])
def test_images_are_read_as_parts_of_one_channels_first(tmp_path, make):
    theirs, pre, post = saved(tmp_path, make({"observation.state": 3}, ["observation.images.top"]))
    policy = lerobot_policy(tmp_path, key_map=(), action_horizon=1)
    image = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), np.uint8)
    obs = {"images": {"camera": image}, "states": {"a": np.ones((2, 2)), "b": np.ones((2, 1))}, "text": OBS["text"]}
    assert policy.check_observation(obs) is None
    torch.manual_seed(1)
    actions, _ = policy.get_action_and_runtime_state(obs)
    batch = {
        "observation.state": torch.ones(2, 3),
        "observation.images.top": torch.from_numpy(image).permute(0, 3, 1, 2).float() / 255,
    }
    torch.manual_seed(1)
    theirs.reset()
    inputs = {key: value for key, value in pre(batch).items() if key.startswith("observation.")}
    np.testing.assert_allclose(actions[:, 0], post(theirs.select_action(inputs)).numpy(), rtol=1e-4, atol=1e-5)
    small = {**obs, "images": {"camera": image[:, :32]}}
    assert "is [32, 64, 3], the policy reads (64, 64, 3)" in policy.check_observation(small)


def test_a_warm_up_works_for_every_kind(tmp_path):
    saved(tmp_path / "act", act({"observation.state": 3}, ["observation.images.top", "observation.images.side"]))
    policy = lerobot_policy(tmp_path / "act", key_map=())
    assert policy.get_action_and_runtime_state(policy.fake_obs(2))[0].shape == (2, 5, 2)


def test_policies_with_a_memory_are_refused_or_told_to_do_without(tmp_path):
    saved(tmp_path / "two", diffusion(n_obs_steps=2))
    with pytest.raises(ConfigError, match=r"reads the last 2 observations.*--policy\.repeat-observation"):
        lerobot_policy(tmp_path / "two")
    repeating = lerobot_policy(tmp_path / "two", repeat_observation=True)
    assert repeating.get_action_and_runtime_state(OBS)[0].shape == (2, 4, 2)
    saved(tmp_path / "mean", act(temporal_ensemble_coeff=0.01, n_action_steps=1))
    with pytest.raises(ConfigError, match="temporal_ensemble_coeff"):
        lerobot_policy(tmp_path / "mean")


# Fine-tuning -----------------------------------------------------------------------------------------------------


def fine_tunable(folder, **changes):
    keys = {"state_keys": ("arm", "base", "goal"), "image_keys": (), "image_shapes": {}, "obs_dim": 5, "action_dim": 2}
    config = LeRobotDiffusionPolicyConfig(
        **{"policy_path": folder, "device": "cpu", "action_space": SPACE, **keys, **changes}
    )
    config.check()
    return LeRobotDiffusionPolicy(config)


@pytest.mark.parametrize("steps", [10, 5])
def test_a_step_of_the_chain_is_lerobot_s_scheduler_s(tmp_path, steps):
    theirs, pre, _ = saved(tmp_path, diffusion())
    policy = fine_tunable(tmp_path, num_steps=steps, min_sampling_std=1e-6)
    scheduler = theirs.diffusion.noise_scheduler
    scheduler.set_timesteps(steps)
    x = torch.randn(2, 8, 2)
    inputs = pre(batch_of(OBS))
    conditioning = {name: inputs[name][:, None] for name in STATES}
    global_cond = theirs.diffusion._prepare_global_conditioning(conditioning)
    condition = policy.condition(policy.features(policy.observe(OBS)))
    torch.testing.assert_close(condition, global_cond)
    for k, t in enumerate(scheduler.timesteps):
        noise = theirs.diffusion.unet(x, torch.full((2,), int(t)), global_cond=global_cond)
        mean, std = policy.denoise_step(condition, x, torch.full((2,), k))
        draws = torch.stack([scheduler.step(noise, t, x).prev_sample for _ in range(2000)])
        torch.testing.assert_close(mean, draws.mean(0), atol=0.1, rtol=0)
        if k < steps - 1:
            assert float(draws.detach().std(0).mean()) == pytest.approx(float(std.mean()), rel=0.05)
        exact = scheduler.step(noise, t, x, generator=torch.Generator().manual_seed(0)).prev_sample
        drawn = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)) if k < steps - 1 else 0
        torch.testing.assert_close(mean + std * drawn, exact, atol=2e-5, rtol=1e-4)


def test_policies_that_predict_the_sample_are_the_same_chain(tmp_path):
    theirs, _, _ = saved(tmp_path, diffusion(prediction_type="sample"))
    policy = fine_tunable(tmp_path, min_sampling_std=1e-6)
    scheduler = theirs.diffusion.noise_scheduler
    scheduler.set_timesteps(10)
    x, condition = torch.randn(2, 8, 2), policy.condition(policy.features(policy.observe(OBS)))
    for k in (0, 4):
        t = scheduler.timesteps[k]
        output = theirs.diffusion.unet(x, torch.full((2,), int(t)), global_cond=condition)
        exact = scheduler.step(output, t, x, generator=torch.Generator().manual_seed(0)).prev_sample
        drawn = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
        mean, std = policy.denoise_step(condition, x, torch.full((2,), k))
        torch.testing.assert_close(mean + std * drawn, exact, atol=1e-4, rtol=1e-3)


def test_the_posterior_is_the_one_of_diffusers():
    from diffusers.schedulers.scheduling_ddpm import DDPMScheduler

    scheduler = DDPMScheduler(50, beta_schedule="squaredcos_cap_v2")
    scheduler.set_timesteps(10)
    steps = spaced_posterior(scheduler.alphas_cumprod.double().numpy(), scheduler.timesteps.numpy())
    for k, t in enumerate(scheduler.timesteps[:-1]):
        assert steps.std[k] == pytest.approx(float(scheduler._get_variance(t)) ** 0.5, rel=1e-4)


def test_without_noise_a_chunk_is_a_function_of_the_observation_in_lerobot_s_units(tmp_path):
    saved(tmp_path, diffusion())
    policy = fine_tunable(tmp_path)
    policy.deterministic = True
    actions, state = policy.get_action_and_runtime_state(OBS)
    assert (actions.shape, state["chain"].shape) == ((2, 4, 2), (2, 11, 8, 2))
    np.testing.assert_allclose(actions, 1 + 3 * state["chain"][:, -1, :4], rtol=1e-4, atol=1e-5)  # -2 to 4 is -1 to 1
    alone = {**OBS, "states": {name: state[:1] for name, state in OBS["states"].items()}, "text": OBS["text"][:1]}
    np.testing.assert_allclose(policy.get_action_and_runtime_state(alone)[0], actions[:1], rtol=1e-4, atol=1e-5)


def test_images_condition_the_chain_too(tmp_path):
    saved(tmp_path, diffusion({"observation.state": 3}, ["observation.images.top"], use_group_norm=True))
    policy = fine_tunable(
        tmp_path, state_keys=("s",), image_keys=("top",), image_shapes={"top": (64, 64, 3)}, obs_dim=3
    )
    obs = {"images": {"top": np.zeros((2, 64, 64, 3), np.uint8)}, "states": {"s": np.ones((2, 3))}, "text": OBS["text"]}
    features_of = policy.features(policy.observe(obs))
    assert policy.value(features_of).shape == (2,)
    assert policy.get_action_and_runtime_state(obs)[0].shape == (2, 4, 2)


def test_what_does_not_fit_is_refused_with_both_sides(tmp_path):
    saved(tmp_path / "d", diffusion())
    saved(tmp_path / "a", act())
    saved(tmp_path / "two", diffusion(n_obs_steps=2))
    for folder, change, words in (
        ("a", {}, "is a policy of type act, expected diffusion"),
        ("two", {}, "this one reads 2"),
        ("d", {"obs_dim": 4, "state_keys": ("arm", "goal")}, "obs_dim 4, this policy reads 5"),
        ("d", {"action_dim": 3, "action_space": None}, "action_dim 3, this policy has 2"),
        ("d", {"action_horizon": 9}, "--policy.action-horizon 9: this policy's horizon is 8"),
    ):
        with pytest.raises(ConfigError, match=words):
            fine_tunable(tmp_path / folder, **change)


def test_dppo_learns_with_it_and_changes_lerobot_s_weights(tmp_path):
    saved(tmp_path, diffusion())
    torch.manual_seed(0)
    policy = fine_tunable(tmp_path, num_steps=5, critic_hidden_sizes=(16, 16, 16))
    algorithm = DPPO(
        DPPOConfig(buffer_size=16, batch_size=16, update_epochs=2, finetuned_steps=3, global_steps=64), policy
    )
    algorithm.init_optimizers()
    before = {name: value.clone() for name, value in policy.model.named_parameters()}
    flags = np.zeros(2, bool)
    for _ in range(8):
        actions, runtime_state = algorithm.infer(OBS)
        algorithm.feedback_rows(
            FeedbackRows(
                OBS, runtime_state, algorithm.derive_train_state(runtime_state), flags, flags, OBS,
                actions.mean((1, 2)).astype("f4"), [{}, {}], ~flags, flags, [NO_NODE] * 2,
            )
        )  # fmt: skip
    assert algorithm.should_learn()
    _, metrics = algorithm.learn()
    algorithm.post_learn()
    assert all(np.isfinite(value) for value in metrics.values())
    assert any(not torch.equal(value, before[name]) for name, value in policy.model.named_parameters())
    again = fine_tunable(tmp_path, num_steps=5, critic_hidden_sizes=(16, 16, 16))
    again.load_state_dict(policy.state_dict())
    policy.deterministic = again.deterministic = True
    assert np.array_equal(policy.get_action_and_runtime_state(OBS)[0], again.get_action_and_runtime_state(OBS)[0])
