"""What the configuration of sac-policy refuses."""

import pytest
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.sac.sac_policy_config import SACPolicyConfig


def test_the_defaults_are_sound_and_leave_observations_alone():
    config = SACPolicyConfig()
    config.check()
    assert config.hidden_sizes == (256, 256)
    assert not config.normalize_observations


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"action_dim": 0}, "--policy.action-dim 0"),
        ({"action_horizon": 0}, "--policy.action-horizon 0"),
        ({"hidden_sizes": (64, 0)}, "--policy.hidden-sizes 64 0"),
        ({"hidden_sizes": ()}, "--policy.hidden-sizes"),
        ({"obs_dim": 0}, "--policy.obs-dim 0"),
    ],
)
def test_what_cannot_work_is_refused_with_its_flag(changes, flag):
    with pytest.raises(ConfigError, match=flag):
        SACPolicyConfig(**changes).check()
