"""The configuration of a flow that is fine-tuned."""

from pathlib import Path

import pytest
from plugrl_server import assembly
from plugrl_server.algorithm.dppo.dppo_config import DPPOConfig
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.lerobot.lerobot_flow_policy_config import LeRobotFlowPolicyConfig


def test_horizon_and_steps_are_the_checkpoint_s_by_default():
    config = LeRobotFlowPolicyConfig(policy_path=Path("folder"))
    config.check()
    assert (config.action_horizon, config.num_steps, config.normalize_observations) == (None, None, False)
    assert config.brings_weights


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"policy_path": None}, "--policy.policy-path FOLDER is missing"),
        ({"critic_hidden_sizes": (8, 0)}, "--policy.critic-hidden-sizes 8 0"),
        ({"num_steps": 0}, "--policy.num-steps 0"),
        ({"dtype": "bfloat16"}, "--policy.dtype bfloat16"),
    ],
)
def test_what_cannot_work_is_refused_with_the_flag(change, words):
    with pytest.raises(ConfigError, match=words):
        LeRobotFlowPolicyConfig(**{"policy_path": Path("folder"), **change}).check()


def test_it_is_for_fpo():
    assert "  fpo <- fpo-policy, lerobot-flow-policy" in assembly.pairs_table()
    config = LeRobotFlowPolicyConfig(policy_path=Path("folder"))
    with pytest.raises(ConfigError, match="dppo does not work with lerobot-flow-policy"):
        assembly.check(assembly.Selection("lerobot-flow-policy", "default", config, "dppo", "default", DPPOConfig()))
