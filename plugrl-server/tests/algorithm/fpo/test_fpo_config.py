"""FPO's configuration: the papers' defaults, presets, and what is refused (rule 8)."""

from pathlib import Path

import pytest
from plugrl_server.algorithm.fpo.fpo_config import FPOConfig, FPOPlusPlusConfig
from plugrl_server.algorithm.registration import list_algos
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.fpo.fpo_policy_config import FPOPolicyConfig
from plugrl_server.policy.lerobot.lerobot_flow_policy_config import LeRobotFlowPolicyConfig


def test_defaults_are_the_paper_s():
    config = FPOConfig()
    assert (config.num_samples, config.clip_coef, config.learning_rate) == (8, 0.05, 3e-4)
    assert (config.batch_size, config.update_epochs, config.gamma, config.gae_lambda) == (1024, 16, 0.995, 0.95)
    assert (config.reward_scale, config.normalize_rewards, config.vf_coef) == (10.0, False, 0.25)
    assert (config.flow_loss, config.ratio, config.objective) == ("u_but_supervise_as_eps", "mean", "ppo")
    assert config.normalize_advantages


def test_rule_8_the_default_buffer_suits_the_default_run():
    """An earlier default of 983,040 frames made every short run learn once."""
    for preset in list_algos()["fpo"].values():
        config = preset()
        assert config.global_steps / config.buffer_size >= 30


def test_rule_10_presets_are_variants():
    variants = list_algos()["fpo"]
    assert variants["plus-plus"] is FPOPlusPlusConfig
    for config in variants.values():
        config().check()
    plus_plus = FPOPlusPlusConfig()
    assert (plus_plus.ratio, plus_plus.objective) == ("per-sample", "aspo")
    assert (plus_plus.advantage_clamp, plus_plus.loss_clamp, plus_plus.difference_clamp) == (100, 20, 10)
    assert (plus_plus.ema_decay, plus_plus.ema_start) == (0.95, 500)
    finetune = variants["plus-plus-finetune"]()
    assert (finetune.learning_rate, finetune.critic_learning_rate, finetune.betas) == (1e-5, 1e-4, (0.9, 0.99))
    assert (finetune.ratio, finetune.objective, finetune.loss_reduction) == ("per-sample", "aspo", "sum")
    cheetah = variants["cheetah"]()
    assert (cheetah.flow_loss, cheetah.ratio, cheetah.objective, cheetah.clip_coef) == ("u", "mean", "aspo", 0.2)
    assert cheetah.anneal_learning_rate


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"num_samples": 0}, r"--algo\.num-samples 0: must be at least 1"),
        ({"ema_start": -1}, r"--algo\.ema-start -1: must be at least 0"),
        ({"clip_coef": 0.0}, r"--algo\.clip-coef 0\.0: must be a finite number above 0"),
        ({"loss_clamp": -1.0}, r"--algo\.loss-clamp -1\.0: must be a finite number above 0"),
        ({"difference_clamp": float("inf")}, r"--algo\.difference-clamp inf: must be a finite number above 0"),
        ({"huber_delta": float("nan")}, r"--algo\.huber-delta nan: must be a finite number above 0"),
        ({"ema_decay": 1.0}, r"--algo\.ema-decay 1\.0: must be below 1"),
        ({"ema_decay": -0.5}, r"--algo\.ema-decay -0\.5: must lie between 0 and 1"),
        ({"betas": (0.9, 1.0)}, r"--algo\.betas 0\.9 1\.0: both must be at least 0 and below 1"),
        ({"vf_coef": -1.0}, r"--algo\.vf-coef -1\.0: must be a finite number of at least 0"),
        ({"advantage_shift": -0.5}, r"--algo\.advantage-shift -0\.5: must be a finite number of at least 0"),
        ({"weight_decay": float("inf")}, r"--algo\.weight-decay inf: must be a finite number of at least 0"),
        ({"batch_size": 8192}, r"--algo\.batch-size 8192 is larger than --algo\.buffer-size 4096"),
    ],
)
def test_rule_8_what_can_never_learn_is_refused_with_its_numbers(change, problem):
    with pytest.raises(ConfigError, match=problem):
        FPOConfig(**change).check()


def test_rule_8_more_actions_than_a_chunk_has_are_refused():
    FPOConfig(executed_steps=4).check_policy("p", FPOPolicyConfig(action_horizon=4))
    with pytest.raises(ConfigError, match=r"--algo\.executed-steps 5 is more than p's --policy\.action-horizon 4"):
        FPOConfig(executed_steps=5).check_policy("p", FPOPolicyConfig(action_horizon=4))
    with pytest.raises(ConfigError, match=r"--algo\.executed-steps 0: must be at least 1"):
        FPOConfig(executed_steps=0).check()


def test_rule_8_random_weights_are_not_fine_tuned_unless_the_policy_brings_its_own():
    finetune = list_algos()["fpo"]["plus-plus-finetune"]
    with pytest.raises(ConfigError, match=r"plus-finetune needs --algo\.policy-checkpoint-path .* fpo plus-plus"):
        finetune().check_policy("fpo-policy", FPOPolicyConfig())
    finetune(policy_checkpoint_path=Path("run")).check_policy("fpo-policy", FPOPolicyConfig())
    finetune().check_policy("lerobot-flow-policy", LeRobotFlowPolicyConfig())


def test_the_policy_it_begins_with_is_looked_up(tmp_path):
    assert FPOConfig().policy_record() is None
    with pytest.raises(ConfigError, match="no-such-run"):
        FPOConfig(policy_checkpoint_path=tmp_path / "no-such-run").policy_record()
