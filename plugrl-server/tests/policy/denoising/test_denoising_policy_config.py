"""What a denoising policy's configuration refuses."""

import pytest
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.denoising.denoising_policy_config import DenoisingPolicyConfig


def test_the_defaults_are_fine_and_sized_by_the_environment():
    config = DenoisingPolicyConfig()
    config.check()
    assert (config.obs_dim, config.action_dim, config.action_space, config.state_keys) == (None,) * 4
    assert config.action_kinds == ("box",)


@pytest.mark.parametrize("name", ["action_dim", "action_horizon", "num_steps"])
def test_sizes_below_1_are_refused(name):
    with pytest.raises(ConfigError, match=rf"--policy\.{name.replace('_', '-')} 0: must be at least 1"):
        DenoisingPolicyConfig(**{name: 0}).check()
