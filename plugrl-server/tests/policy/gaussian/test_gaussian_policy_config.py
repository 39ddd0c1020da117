"""The Gaussian policy's configuration."""

from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig


def test_defaults():
    config = GaussianPolicyConfig()
    assert config.action_kinds == ("box",)
    assert (config.hidden_sizes, config.initial_log_std, config.normalize_observations) == ((64, 64), 0.0, True)
    config.check()
