"""The dummy policy's configuration."""

import pytest
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig


def test_it_needs_no_declaration():
    config = DummyPolicyConfig()
    assert (config.action_dim, config.action_horizon, config.action_space) == (7, 4, None)
    config.check()


@pytest.mark.parametrize(("field", "flag"), [("action_dim", "action-dim"), ("action_horizon", "action-horizon")])
def test_sizes_below_one_are_refused(field, flag):
    with pytest.raises(ConfigError, match=f"--policy.{flag} 0: must be at least 1"):
        DummyPolicyConfig(**{field: 0}).check()
