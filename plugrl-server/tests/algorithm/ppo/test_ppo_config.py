"""PPO's configuration: defaults of the paper's reference, presets, and what is refused (rule 8)."""

import pytest
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig, PPODiscreteConfig, PPOPendulumConfig
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
    pendulum = PPOPendulumConfig()
    assert (pendulum.global_steps, pendulum.gamma, pendulum.learning_rate, pendulum.buffer_size) == (
        102_400,
        0.9,
        1e-3,
        4096,
    )
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
        ({"critic_warmup_iterations": -1}, r"--algo\.critic-warmup-iterations -1: must not be negative"),
        ({"global_steps": None}, r"--algo\.anneal-learning-rate needs a run length"),
        ({"global_steps": 0}, r"--algo\.global-steps 0: must be at least 1"),
    ],
)
def test_rule_8_what_can_never_learn_is_refused_with_its_numbers(change, problem):
    with pytest.raises(ConfigError, match=problem):
        PPOConfig(**change).check()


def test_an_endless_run_without_annealing_is_fine():
    PPOConfig(global_steps=None, anneal_learning_rate=False).check()
