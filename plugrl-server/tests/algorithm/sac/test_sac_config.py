"""What the configuration of SAC says and refuses."""

import pytest
from plugrl_server.algorithm.registration import list_algos
from plugrl_server.algorithm.sac.sac_config import SACConfig
from plugrl_server.common.config_error import ConfigError


def test_the_defaults_are_the_published_ones():
    config = SACConfig()
    config.check()
    assert (config.batch_size, config.learning_starts, config.buffer_size) == (256, 5000, 1_000_000)
    assert (config.learning_rate, config.critic_learning_rate) == (3e-4, 1e-3)
    assert (config.policy_frequency, config.tau, config.gamma, config.autotune) == (2, 0.005, 0.99, True)
    assert config.updates_per_step == 1


@pytest.mark.parametrize("variant", ["default", "pendulum"])
def test_every_preset_can_learn(variant):
    config = list_algos()["sac"][variant]()
    config.check()
    assert config.policies == ("sac-policy",)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"learning_starts": 9, "global_steps": 9}, r"--algo.learning-starts 9 is not below --algo.global-steps 9"),
        ({"batch_size": 50, "buffer_size": 49}, r"--algo.batch-size 50 is larger than --algo.buffer-size 49"),
        ({"updates_per_step": 1e-6, "global_steps": 9000}, r"no update is due in the 4000 steps"),
        ({"updates_per_step": 0.0}, r"--algo.updates-per-step 0.0: must be a finite number above 0"),
        ({"learning_starts": 0}, r"--algo.learning-starts 0"),
        ({"policy_frequency": 0}, r"--algo.policy-frequency 0"),
        ({"report_interval": 0}, r"--algo.report-interval 0"),
        ({"save_interval": 0}, r"--algo.save-interval 0"),
        ({"learning_rate": float("nan")}, r"--algo.learning-rate nan"),
        ({"critic_learning_rate": -1.0}, r"--algo.critic-learning-rate -1.0"),
        ({"alpha": 0.0}, r"--algo.alpha 0.0"),
        ({"gamma": 1.5}, r"--algo.gamma 1.5"),
        ({"tau": 0.0}, r"--algo.tau 0.0"),
        ({"target_entropy": float("inf")}, r"--algo.target-entropy inf"),
        ({"global_steps": 0}, r"--algo.global-steps 0"),
    ],
)
def test_rule_8_what_can_never_learn_is_refused_with_the_numbers(changes, problem):
    with pytest.raises(ConfigError, match=problem):
        SACConfig(**changes).check()
