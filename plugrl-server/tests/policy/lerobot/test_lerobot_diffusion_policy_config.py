"""The configuration of a policy that is fine-tuned."""

from pathlib import Path

import pytest
from plugrl_server import assembly
from plugrl_server.algorithm.fpo.fpo_config import FPOConfig
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.lerobot.lerobot_diffusion_policy_config import LeRobotDiffusionPolicyConfig


def test_horizon_and_steps_are_the_checkpoint_s_by_default():
    config = LeRobotDiffusionPolicyConfig(policy_path=Path("folder"))
    config.check()
    assert (config.action_horizon, config.num_steps, config.normalize_observations) == (None, None, False)
    assert config.algorithms == ("dppo",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"policy_path": None}, "--policy.policy-path FOLDER is missing"),
        ({"critic_hidden_sizes": ()}, "--policy.critic-hidden-sizes"),
        ({"num_steps": 0}, "--policy.num-steps 0"),
    ],
)
def test_what_cannot_work_is_refused_with_the_flag(change, words):
    with pytest.raises(ConfigError, match=words):
        LeRobotDiffusionPolicyConfig(**{"policy_path": Path("folder"), **change}).check()


def test_it_is_no_flow():
    config = LeRobotDiffusionPolicyConfig(policy_path=Path("folder"))
    with pytest.raises(ConfigError, match="fpo does not work with lerobot-diffusion-policy"):
        assembly.check(assembly.Selection("lerobot-diffusion-policy", "default", config, "fpo", "default", FPOConfig()))
