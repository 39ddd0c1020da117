"""DPPO's configuration: presets, and what is refused (rule 8)."""

import dataclasses
from pathlib import Path

import pytest
from plugrl_server.algorithm.dppo import dppo_config
from plugrl_server.algorithm.dppo.dppo_config import DPPOConfig, DPPOFinetuneConfig
from plugrl_server.algorithm.registration import list_algos
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.dppo.dppo_policy_config import DPPOPolicyConfig
from plugrl_server.policy.fpo.fpo_policy_config import FPOPolicyConfig
from plugrl_server.policy.lerobot.lerobot_diffusion_policy_config import LeRobotDiffusionPolicyConfig


def test_rule_10_presets_are_variants_that_work():
    variants = list_algos()["dppo"]
    assert {"default", "finetune", "hopper", "walker", "cheetah"} <= set(variants)
    for config in variants.values():
        config().check()
        path = {"policy_checkpoint_path": Path("run")} if config is DPPOFinetuneConfig else {}
        config(**path).check_policy("dppo-policy", DPPOPolicyConfig())
        assert config().policies == ("dppo-policy", "fpo-policy", "lerobot-diffusion-policy")


def test_the_paper_s_fine_tuning():
    config = DPPOFinetuneConfig()
    assert (config.batch_size, config.update_epochs, config.finetuned_steps) == (5000, 5, 10)
    assert (config.learning_rate, config.critic_learning_rate, config.clip_coef) == (1e-4, 1e-3, 0.01)
    assert (config.gamma, config.gamma_denoising, config.target_kl) == (0.99, 0.99, 1.0)


def test_the_locomotion_variants_are_the_default_but_for_the_flags_in_the_readme():
    readme = Path(dppo_config.__file__).with_name("README.md").read_text()
    _, _, section = readme.partition("## The locomotion variants\n")
    rows = [line.strip("| ").split(" | ") for line in section.split("\n## ")[0].splitlines() if line.startswith("| ")]
    columns = {name.strip("`"): values for name, *values in zip(*rows, strict=True)}
    fields = [flag.strip("`").removeprefix("--algo.").replace("-", "_") for flag in columns.pop("flag")]
    assert [*columns] == ["default", "hopper", "walker", "cheetah"]
    words = {"no": False, "yes": True, "none": None}
    for variant, values in columns.items():
        numbers = [words[value] if value in words else float(value) for value in values]
        told = dict(zip(fields, numbers, strict=True))
        config = list_algos()["dppo"][variant]()
        assert dataclasses.asdict(config) == {**dataclasses.asdict(DPPOConfig()), **told}


def test_rule_8_random_weights_are_not_fine_tuned_unless_the_policy_brings_its_own():
    with pytest.raises(ConfigError, match=r"dppo finetune needs --algo\.policy-checkpoint-path .* dppo default"):
        DPPOFinetuneConfig().check_policy("dppo-policy", DPPOPolicyConfig())
    DPPOFinetuneConfig(finetuned_steps=None).check_policy("lerobot-diffusion-policy", LeRobotDiffusionPolicyConfig())


def test_from_scratch_every_step_learns():
    assert DPPOConfig().finetuned_steps is None
    assert DPPOConfig().policy_record() is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"buffer_size": 4096, "global_steps": 1000}, r"buffer-size 4096 is larger than --algo\.global-steps 1000"),
        ({"batch_size": 5000}, r"--algo\.batch-size 5000 is larger than --algo\.buffer-size"),
        ({"finetuned_steps": 0}, r"--algo\.finetuned-steps 0: must be at least 1"),
        ({"executed_steps": 0}, r"--algo\.executed-steps 0: must be at least 1"),
        ({"clip_coef": 0.0}, r"--algo\.clip-coef 0\.0: must be a finite number above 0"),
        ({"clip_coef_base": -1.0}, r"--algo\.clip-coef-base -1\.0: must be a finite number above 0"),
        ({"clip_coef_rate": 0.0}, r"--algo\.clip-coef-rate 0\.0: must be a finite number above 0"),
        ({"clip_coef_rate": 90.0}, r"--algo\.clip-coef-rate 90\.0: must be at most 80"),
        ({"min_logprob_std": 0.0}, r"--algo\.min-logprob-std 0\.0: must be a finite number above 0"),
        ({"gamma_denoising": 1.1}, r"--algo\.gamma-denoising 1\.1: must lie between 0 and 1"),
        ({"advantage_quantile": 0.5}, r"--algo\.advantage-quantile 0\.5: must lie between 0 and 0\.5"),
        ({"weight_decay": -1.0}, r"--algo\.weight-decay -1\.0: must be a finite number of at least 0"),
    ],
)
def test_rule_8_what_can_never_learn_is_refused_with_its_numbers(change, problem):
    with pytest.raises(ConfigError, match=problem):
        DPPOConfig(**change).check()


@pytest.mark.parametrize(
    ("change", "config", "problem"),
    [
        ({"finetuned_steps": 21}, DPPOPolicyConfig(), r"--algo\.finetuned-steps 21 is more than p's .*-steps 20"),
        ({"executed_steps": 5}, DPPOPolicyConfig(), r"--algo\.executed-steps 5 is more than p's .*-horizon 4"),
        ({}, FPOPolicyConfig(exploration_noise=0.0), r"p has none: --policy\.exploration-noise 1\.0"),
    ],
)
def test_rule_8_a_policy_it_cannot_learn_with_is_refused(change, config, problem):
    with pytest.raises(ConfigError, match=problem):
        DPPOConfig(**change).check_policy("p", config)
