"""Configuration of lerobot's diffusion policy, to be fine-tuned."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

from plugrl_server.common.config_error import require
from plugrl_server.policy.diffusion.diffusion_policy_config import DiffusionPolicyConfig
from plugrl_server.policy.registration import register_policy_config


@register_policy_config("lerobot-diffusion-policy")
@dataclasses.dataclass
class LeRobotDiffusionPolicyConfig(DiffusionPolicyConfig):
    """lerobot's diffusion policy as a chain that dppo fine-tunes."""

    algorithms: ClassVar[tuple[str, ...]] = ("dppo",)
    brings_weights: ClassVar[bool] = True

    policy_path: Path | None = None
    """Folder that lerobot saved the policy in, with its two processors."""
    action_horizon: int | None = None  # type: ignore[assignment]
    """Actions of a chunk that are sent; default: the policy's own n_action_steps."""
    num_steps: int | None = None  # type: ignore[assignment]
    """Denoising steps; default: as many as lerobot takes."""
    normalize_observations: bool = False
    """Normalise states by their running statistics too; lerobot's own normalisation is always applied."""
    critic_hidden_sizes: tuple[int, ...] = (256, 256, 256)
    """Widths of the hidden layers of the value network."""

    def check(self) -> None:
        """Refuse a missing folder's name, and sizes that make no network."""
        super().check()
        require(self.policy_path is not None, "--policy.policy-path FOLDER is missing: where lerobot saved the policy.")
        sizes = " ".join(map(str, self.critic_hidden_sizes))
        require(
            len(self.critic_hidden_sizes) > 0 and min(self.critic_hidden_sizes) >= 1,
            f"--policy.critic-hidden-sizes {sizes}: name widths of at least 1.",
        )
