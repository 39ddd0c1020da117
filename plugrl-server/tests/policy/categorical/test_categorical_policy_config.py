"""The categorical policy's configuration."""

import pytest
from plugrl_server.common.config_error import ConfigError
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


def test_more_choices_than_a_network_can_have_outputs_are_refused():
    CategoricalPolicyConfig(action_dim=2**20).check()
    with pytest.raises(ConfigError, match=r"action-dim 1048577: a categorical policy has at most 1048576 choices"):
        CategoricalPolicyConfig(action_dim=2**20 + 1).check()
