"""The Gaussian policy's configuration."""

import pytest
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig


def test_defaults():
    config = GaussianPolicyConfig()
    assert config.action_kinds == ("box",)
    assert (config.hidden_sizes, config.initial_log_std, config.normalize_observations) == ((64, 64), 0.0, True)
    config.check()


@pytest.mark.parametrize("log_std", [float("nan"), float("inf"), -21.0, 100.0])
def test_a_deviation_that_float32_cannot_hold_is_refused(log_std):
    with pytest.raises(ConfigError, match=r"--policy\.initial-log-std \S+: must lie between -20 and 20"):
        GaussianPolicyConfig(initial_log_std=log_std).check()
