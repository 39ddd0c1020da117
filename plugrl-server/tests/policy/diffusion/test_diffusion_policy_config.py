"""What a diffusion policy's configuration refuses."""

import pytest
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.diffusion.diffusion_policy_config import DiffusionPolicyConfig


@pytest.mark.parametrize("name", ["denoised_clip", "min_sampling_std"])
@pytest.mark.parametrize("value", [0.0, float("inf"), float("nan")])
def test_numbers_out_of_range_are_refused(name, value):
    DiffusionPolicyConfig().check()
    with pytest.raises(ConfigError, match=rf"--policy\.{name.replace('_', '-')} {value}: must be a finite number"):
        DiffusionPolicyConfig(**{name: value}).check()
