"""The diffusion MLP's configuration."""

import pytest
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.dppo.dppo_policy_config import DPPOPolicyConfig
from plugrl_server.policy.registration import list_policies


def test_the_default_is_the_paper_s_and_variants_are_fine():
    config = DPPOPolicyConfig()
    sizes = (
        config.action_horizon,
        config.num_steps,
        config.actor_hidden_sizes,
        config.critic_hidden_sizes,
        config.min_sampling_std,
    )
    assert sizes == (4, 20, (512,) * 3, (256,) * 3, 0.1)
    for variant in list_policies()["dppo-policy"].values():
        variant().check()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"actor_hidden_sizes": ()}, r"--policy\.actor-hidden-sizes : name widths"),
        ({"critic_hidden_sizes": (64, 0)}, r"--policy\.critic-hidden-sizes 64 0: name widths"),
        ({"time_embedding": 5}, r"--policy\.time-embedding 5: must be an even number"),
        ({"time_embedding": 2}, r"--policy\.time-embedding 2: must be an even number of at least 4"),
    ],
)
def test_what_makes_no_network_is_refused(change, problem):
    with pytest.raises(ConfigError, match=problem):
        DPPOPolicyConfig(**change).check()
