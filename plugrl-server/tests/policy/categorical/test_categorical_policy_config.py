"""The categorical policy's configuration."""

from plugrl_server.policy.categorical.categorical_policy_config import (
    CategoricalPolicyAtariConfig,
    CategoricalPolicyConfig,
)
from plugrl_server.policy.registration import list_policies


def test_defaults():
    config = CategoricalPolicyConfig()
    assert config.action_kinds == ("discrete", "multi_discrete", "multi_binary")
    config.check()


def test_atari_is_cleanrl_s_agent():
    config = CategoricalPolicyAtariConfig()
    assert list_policies()["categorical-policy"]["atari"] is CategoricalPolicyAtariConfig
    assert (config.hidden_sizes, config.image_encoder) == ((), "nature")
    config.check()
