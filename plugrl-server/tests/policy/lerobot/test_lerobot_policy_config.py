"""What is refused before lerobot is imported."""

from pathlib import Path

import pytest
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.lerobot.lerobot_policy_config import LeRobotPolicyConfig


def test_a_folder_is_needed_and_no_checkpoint():
    LeRobotPolicyConfig(policy_path=Path("folder"), key_map=("observation.state=arm+base",)).check()
    assert LeRobotPolicyConfig.brings_weights
    with pytest.raises(ConfigError, match=r"--policy\.policy-path FOLDER is missing"):
        LeRobotPolicyConfig().check()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"action_horizon": 0}, "--policy.action-horizon 0"), ({"key_map": ("state",)}, "--policy.key-map state")],
)
def test_what_cannot_work_is_refused_with_the_flag(change, words):
    with pytest.raises(ConfigError, match=words):
        LeRobotPolicyConfig(policy_path=Path("folder"), **change).check()
