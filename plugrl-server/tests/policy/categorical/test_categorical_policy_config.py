"""The categorical policy's configuration."""

from plugrl_server.policy.categorical.categorical_policy_config import CategoricalPolicyConfig


def test_defaults():
    config = CategoricalPolicyConfig()
    assert config.action_kinds == ("discrete", "multi_discrete", "multi_binary")
    config.check()
