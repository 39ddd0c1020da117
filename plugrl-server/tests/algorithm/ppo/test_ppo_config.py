"""PPO's configuration: defaults of the paper's reference, presets, and what is refused (rule 8)."""

import pytest
from plugrl_server.algorithm.ppo.ppo_config import (
    PPOAtariConfig,
    PPOConfig,
    PPODiscreteConfig,
    PPODPPOSquareConfig,
    PPOPendulumConfig,
)
from plugrl_server.algorithm.registration import list_algos
from plugrl_server.common.config_error import ConfigError


def test_defaults():
    config = PPOConfig()
    config.check()
    numbers = (config.global_steps, config.learning_rate, config.adam_eps, config.buffer_size, config.batch_size)
    assert numbers == (150_000, 3e-4, 1e-5, 2048, 64)
    numbers = (config.update_epochs, config.gamma, config.gae_lambda, config.clip_coef, config.ent_coef, config.vf_coef)
    assert numbers == (10, 0.99, 0.95, 0.2, 0.0, 0.5)
    assert (config.max_grad_norm, config.target_kl, config.critic_learning_rate) == (0.5, None, None)
    assert config.clip_vloss
    assert config.normalize_rewards
    assert config.anneal_learning_rate


def test_rule_10_presets_are_variants():
    variants = list_algos()["ppo"]
    assert variants["pendulum"] is PPOPendulumConfig
    assert variants["discrete"] is PPODiscreteConfig
    assert {"default", "atari", "dppo-square"} <= variants.keys()
    for config in variants.values():
        config().check()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"buffer_size": 4096, "global_steps": 1000}, r"buffer-size 4096 is larger than --algo\.global-steps 1000"),
        ({"batch_size": 4096}, r"batch-size 4096 is larger than --algo\.buffer-size 2048"),
        ({"batch_size": 0}, r"--algo\.batch-size 0: must be at least 1"),
        ({"update_epochs": 0}, r"--algo\.update-epochs 0: must be at least 1"),
        ({"save_interval": 0}, r"--algo\.save-interval 0: must be at least 1"),
        ({"learning_rate": 0.0}, r"--algo\.learning-rate 0\.0: must be a finite number above 0"),
        ({"critic_learning_rate": float("nan")}, r"--algo\.critic-learning-rate nan: must be a finite number above 0"),
        ({"gamma": 1.5}, r"--algo\.gamma 1\.5: must lie between 0 and 1"),
        ({"gae_lambda": -0.1}, r"--algo\.gae-lambda -0\.1: must lie between 0 and 1"),
        ({"ent_coef": -1.0}, r"--algo\.ent-coef -1\.0: must be a finite number of at least 0"),
        ({"critic_warmup_iterations": -1}, r"--algo\.critic-warmup-iterations -1: must be at least 0"),
        ({"clip_vloss_coef": 0.0}, r"--algo\.clip-vloss-coef 0\.0: must be a finite number above 0"),
        ({"desired_kl": 0.01}, r"--algo\.desired-kl 0\.01 sets the learning rate itself: add --algo\.no-anneal"),
        (
            {"desired_kl": 0.01, "anneal_learning_rate": False, "learning_rate": 0.1},
            r"--algo\.learning-rate 0\.1: must lie between .*min-learning-rate 1e-05 and .*max-learning-rate 0\.01",
        ),
        ({"critic_warmup_iterations": 73}, r"warmup-iterations 73: the run has 73 iterations"),
        ({"global_steps": None}, r"--algo\.anneal-learning-rate needs a run length"),
        ({"global_steps": 0}, r"--algo\.global-steps 0: must be at least 1"),
    ],
)
def test_rule_8_what_can_never_learn_is_refused_with_its_numbers(change, problem):
    with pytest.raises(ConfigError, match=problem):
        PPOConfig(**change).check()


def test_the_value_clip_is_that_of_the_ratio_unless_it_has_its_own():
    assert PPOConfig().value_clip == 0.2
    assert PPOConfig(clip_vloss_coef=10.0).value_clip == 10.0
    assert PPOConfig(clip_vloss=False, clip_vloss_coef=10.0).value_clip is None


def test_pendulum_has_short_sight_and_a_large_step():
    config = PPOPendulumConfig()
    assert (config.global_steps, config.learning_rate, config.anneal_learning_rate) == (102_400, 1e-3, True)
    assert (config.buffer_size, config.batch_size, config.update_epochs) == (4 * 256, 64, 20)
    assert (config.gamma, config.gae_lambda, config.value_clip, config.normalize_rewards) == (0.95, 0.95, None, True)
    assert config.ent_coef == 0


def test_discrete_has_the_numbers_of_cleanrl_over_100_000_steps():
    config = PPODiscreteConfig()
    assert (config.global_steps, config.learning_rate, config.anneal_learning_rate) == (100_000, 2.5e-4, True)
    assert (config.buffer_size, config.batch_size, config.update_epochs) == (4 * 128, 128, 4)
    assert (config.clip_coef, config.value_clip, config.ent_coef) == (0.2, 0.2, 0.01)


def test_atari_has_the_numbers_of_cleanrl():
    config = PPOAtariConfig()
    assert (config.global_steps, config.learning_rate, config.adam_eps) == (10_000_000, 2.5e-4, 1e-5)
    assert (config.buffer_size, config.batch_size, config.update_epochs) == (8 * 128, 8 * 128 // 4, 4)
    assert (config.gamma, config.gae_lambda, config.clip_coef, config.ent_coef) == (0.99, 0.95, 0.1, 0.01)
    assert (config.vf_coef, config.max_grad_norm, config.target_kl) == (0.5, 0.5, None)
    assert (config.clip_vloss, config.anneal_learning_rate, config.normalize_rewards) == (True, True, False)


def test_dppo_square_has_the_numbers_of_the_paper():
    config = PPODPPOSquareConfig()
    assert (config.learning_rate, config.critic_learning_rate, config.adam_eps) == (1e-4, 1e-3, 1e-8)
    assert (config.buffer_size, config.batch_size, config.gamma, config.clip_coef) == (20_000, 10_000, 0.999, 0.01)
    assert (config.value_clip, config.max_grad_norm, config.target_kl) == (None, None, 1.0)
    assert (config.anneal_learning_rate, config.critic_warmup_iterations) == (False, 1)
    assert config.reward_scaling_gamma == 0.99


def test_an_endless_run_without_annealing_is_fine():
    PPOConfig(global_steps=None, anneal_learning_rate=False).check()
