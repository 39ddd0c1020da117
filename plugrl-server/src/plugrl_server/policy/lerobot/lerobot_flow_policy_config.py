"""Configuration of lerobot's flow policy, to be fine-tuned."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

from plugrl_server.common.config_error import require
from plugrl_server.policy.flow.flow_policy_config import FlowPolicyConfig
from plugrl_server.policy.registration import register_policy_config


@register_policy_config("lerobot-flow-policy")
@dataclasses.dataclass
class LeRobotFlowPolicyConfig(FlowPolicyConfig):
    """lerobot's SmolVLA as a flow that fpo fine-tunes."""

    algorithms: ClassVar[tuple[str, ...]] = ("fpo",)
    brings_weights: ClassVar[bool] = True

    policy_path: Path | None = None
    """Folder that lerobot saved the policy in, with its two processors."""
    backbone_path: Path | None = None
    """Folder with configuration and tokenizer of its language model; default: where lerobot finds them."""
    task: str | None = None
    """What to do, the same in all environments."""
    action_horizon: int | None = None  # type: ignore[assignment]
    """Actions of a chunk that are sent; default: the policy's own n_action_steps."""
    num_steps: int | None = None  # type: ignore[assignment]
    """Euler steps; default: as many as lerobot takes."""
    normalize_observations: bool = False
    """Normalise states by their running statistics too; lerobot's own normalisation is always applied."""
    critic_hidden_sizes: tuple[int, ...] = (256, 256, 256)
    """Widths of the hidden layers of the value network."""

    def check(self) -> None:
        """Refuse a missing folder's name, sizes that make no network, and weights other than lerobot computes in."""
        super().check()
        require(self.policy_path is not None, "--policy.policy-path FOLDER is missing: where lerobot saved the policy.")
        sizes = " ".join(map(str, self.critic_hidden_sizes))
        require(
            len(self.critic_hidden_sizes) > 0 and min(self.critic_hidden_sizes) >= 1,
            f"--policy.critic-hidden-sizes {sizes}: name widths of at least 1.",
        )
        require(
            self.dtype == "float32",
            f"--policy.dtype {self.dtype}: lerobot's flow ends in float32 whatever its weights are; leave it out.",
        )
