"""What an evaluation refuses before it begins."""

from pathlib import Path

import pytest
from plugrl_server import assembly
from plugrl_server.algorithm.evaluation.evaluation_config import EvaluationConfig
from plugrl_server.assembly import ConfigError, Selection
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig


def test_it_takes_any_policy_acts_without_noise_and_counts_ten_episodes():
    config = EvaluationConfig()
    assert (config.policies, config.deterministic, config.num_episodes, config.global_steps) == (None, True, 10, None)
    config.check()
    assert config.policy_record() is None


@pytest.mark.parametrize("change", [{"num_episodes": 0}, {"save_interval": 0}, {"bootstrap_seed": -1}])
def test_counts_below_one_are_refused_with_the_flag(change):
    (name,) = change
    with pytest.raises(ConfigError, match=f"--algo.{name.replace('_', '-')} -?[01]: must be"):
        EvaluationConfig(**change).check()


def selection(uid, policy_config, **changes):
    return Selection(uid, "default", policy_config, "eval", "default", EvaluationConfig(**changes))


def test_random_weights_are_not_measured_unless_the_policy_is_complete_without():
    with pytest.raises(
        ConfigError, match=r"eval needs --algo.policy-checkpoint-path .* gaussian-policy brings no weig"
    ):
        assembly.check(selection("gaussian-policy", GaussianPolicyConfig()))
    assembly.check(selection("gaussian-policy", GaussianPolicyConfig(), policy_checkpoint_path=Path("run")))
    assembly.check(selection("dummy-policy", DummyPolicyConfig()))


def test_the_run_that_trained_the_policy_has_to_be_there(tmp_path):
    with pytest.raises(ConfigError, match="there is no such folder"):
        EvaluationConfig(policy_checkpoint_path=tmp_path / "nowhere").policy_record()
