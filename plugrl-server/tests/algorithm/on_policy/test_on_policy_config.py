"""What on-policy algorithms refuse (rule 8), with the numbers in the text."""

import dataclasses

import pytest
from plugrl_server.algorithm.on_policy.on_policy_config import (
    OnPolicyConfig,
    require_at_least,
    require_fraction,
    require_not_negative,
    require_positive,
)
from plugrl_server.common.config_error import ConfigError


def test_the_defaults_can_learn():
    OnPolicyConfig().check()
    OnPolicyConfig(global_steps=None).check()
    OnPolicyConfig(global_steps=10_000, critic_warmup_iterations=3).check()


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
        ({"reward_scale": -1.0}, r"--algo\.reward-scale -1\.0: must be a finite number above 0"),
        ({"gamma": 1.5}, r"--algo\.gamma 1\.5: must lie between 0 and 1"),
        ({"gae_lambda": -0.1}, r"--algo\.gae-lambda -0\.1: must lie between 0 and 1"),
        ({"critic_warmup_iterations": -1}, r"--algo\.critic-warmup-iterations -1: must be at least 0"),
        ({"critic_warmup_iterations": 4, "global_steps": 10_000}, r"the run has 4 iterations .* would never learn"),
        ({"critic_warmup_iterations": 1, "global_steps": 3000}, r"the run has 1 iterations .* would never learn"),
        ({"global_steps": None, "anneal_learning_rate": True}, r"--algo\.anneal-learning-rate needs a run length"),
        ({"global_steps": 0}, r"--algo\.global-steps 0: must be at least 1"),
    ],
)
def test_rule_8_what_can_never_learn_is_refused_with_its_numbers(change, problem):
    with pytest.raises(ConfigError, match=problem):
        OnPolicyConfig(**change).check()


@dataclasses.dataclass
class Fields(OnPolicyConfig):
    some_field: float | None = None


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (lambda config: require_at_least(config, "some_field", 2), (2, 3, None), (1,)),
        (lambda config: require_positive(config, "some_field"), (1e-9, None), (0.0, float("inf"))),
        (lambda config: require_not_negative(config, "some_field"), (0.0, 7.0, None), (-1e-9, float("nan"))),
        (lambda config: require_fraction(config, "some_field"), (0.0, 1.0, None), (1.01, float("nan"))),
    ],
)
def test_ranges(check, good, bad):
    for value in good:
        check(Fields(some_field=value))
    for value in bad:
        with pytest.raises(ConfigError, match=rf"--algo\.some-field {value}: must "):
            check(Fields(some_field=value))
