"""Configurations of the policies that lerobot trained."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

from plugrl_server.common.config_error import require
from plugrl_server.policy.base_policy import BaseTorchPolicyConfig
from plugrl_server.policy.key_map import KeyMap
from plugrl_server.policy.registration import register_policy_config


@register_policy_config("lerobot-policy")
@dataclasses.dataclass
class LeRobotPolicyConfig(BaseTorchPolicyConfig):
    """Acts by a policy that lerobot trained (ACT, diffusion, and others with action chunks)."""

    action_kinds: ClassVar[tuple[str, ...]] = ("box",)
    brings_weights: ClassVar[bool] = True

    policy_path: Path | None = None
    """Folder that lerobot saved the policy in, with its two processors."""
    backbone_path: Path | None = None
    """Folder with configuration and tokenizer of its language model (smolvla); default: where lerobot finds them."""
    key_map: tuple[str, ...] = ()
    """LEROBOT_KEY=OUR_NAME for every input, states joined by +; default: all states, and images of the same names."""
    action_horizon: int | None = None
    """Use the first so many actions of a chunk; default: the policy's own n_action_steps."""
    repeat_observation: bool = False
    """Let a policy that reads several past observations have the present one in place of all."""
    task: str | None = None
    """What to do, where the environment sends no text."""

    def check(self) -> None:
        """Refuse a missing folder's name, maps that cannot be read, and horizons below 1."""
        require(self.policy_path is not None, "--policy.policy-path FOLDER is missing: where lerobot saved the policy.")
        KeyMap.parse(self.key_map)
        if (horizon := self.action_horizon) is not None:
            require(horizon >= 1, f"--policy.action-horizon {horizon}: must be at least 1.")
