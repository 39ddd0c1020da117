"""The DPPO paper's Gaussian policy, as flags and as limits."""

import pytest
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.dppo_gaussian.dppo_gaussian_policy_config import DPPOGaussianPolicyConfig
from plugrl_server.policy.registration import list_policies


def test_defaults():
    config = DPPOGaussianPolicyConfig()
    config.check()
    assert list_policies()["dppo-gaussian-policy"]["default"] is DPPOGaussianPolicyConfig
    assert (config.action_horizon, config.actor_hidden_sizes, config.critic_hidden_sizes) == (4, (512,) * 3, (256,) * 3)
    assert (config.std, config.learn_std, config.min_std, config.max_std) == (0.1, True, 0.01, 0.2)
    assert "dppo-gaussian-policy" in PPOConfig.policies


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"actor_hidden_sizes": ()}, r"--policy\.actor-hidden-sizes : name widths of at least 1"),
        ({"critic_hidden_sizes": (8, 0)}, r"--policy\.critic-hidden-sizes 8 0: name widths of at least 1"),
        ({"std": 0.0}, r"--policy\.std 0\.0: must be a finite number above 0"),
        ({"std": 0.2}, r"--policy\.std 0\.2: must lie between --policy\.min-std 0\.01 and --policy\.max-std 0\.2"),
        ({"min_std": 0.3}, r"--policy\.std 0\.1: must lie between --policy\.min-std 0\.3"),
    ],
)
def test_what_cannot_work_is_refused(change, problem):
    with pytest.raises(ConfigError, match=problem):
        DPPOGaussianPolicyConfig(**change).check()


def test_a_fixed_deviation_needs_no_bounds():
    DPPOGaussianPolicyConfig(learn_std=False, std=3.0).check()
