"""What a flow policy's configuration refuses."""

import pytest
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.flow.flow_policy_config import FlowPolicyConfig


def test_it_explores_nothing_by_default():
    config = FlowPolicyConfig()
    config.check()
    assert (config.num_steps, config.exploration_noise) == (10, 0.0)


@pytest.mark.parametrize("value", [-0.1, float("inf"), float("nan")])
def test_noise_out_of_range_is_refused(value):
    with pytest.raises(ConfigError, match=rf"--policy\.exploration-noise {value}: must be a finite number"):
        FlowPolicyConfig(exploration_noise=value).check()
