"""The FPO policy's configuration: the paper's defaults, the large variant, and what is refused."""

import pytest
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.fpo.fpo_policy_config import FPOPolicyConfig
from plugrl_server.policy.registration import list_policies


def test_defaults_are_the_paper_s():
    config = FPOPolicyConfig()
    assert (config.actor_hidden_sizes, config.critic_hidden_sizes) == ((32,) * 4, (256,) * 5)
    numbers = (config.output_scale, config.time_embedding, config.num_steps, config.action_horizon)
    assert numbers == (0.25, 8, 10, 1)
    assert config.normalize_observations
    assert config.exploration_noise == 0


def test_variants_are_sound():
    variants = list_policies()["fpo-policy"]
    assert set(variants) == {"default", "exploring", "large"}
    for config in variants.values():
        config().check()
    exploring = variants["exploring"]()
    assert (exploring.exploration_noise, exploring.actor_hidden_sizes, exploring.output_scale) == (0.3, (128, 128), 1.0)
    large = variants["large"]()
    assert (large.actor_hidden_sizes, large.action_horizon, large.num_steps) == ((512,) * 3, 4, 20)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"actor_hidden_sizes": (8, 0)}, r"--policy\.actor-hidden-sizes 8 0: every width must be at least 1"),
        ({"critic_hidden_sizes": (-1,)}, r"--policy\.critic-hidden-sizes -1: every width"),
        ({"time_embedding": 7}, r"--policy\.time-embedding 7: must be an even number of at least 2"),
        ({"time_embedding": 0}, r"--policy\.time-embedding 0: must be an even"),
        ({"output_scale": 0.0}, r"--policy\.output-scale 0\.0: must be a finite number above 0"),
        ({"num_steps": 0}, r"--policy\.num-steps 0: must be at least 1"),
    ],
)
def test_what_makes_no_network_is_refused(change, problem):
    with pytest.raises(ConfigError, match=problem):
        FPOPolicyConfig(**change).check()
