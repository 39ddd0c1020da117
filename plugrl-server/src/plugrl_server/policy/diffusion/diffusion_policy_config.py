"""Configuration that diffusion policies share."""

import dataclasses

from plugrl_server.common.config_error import require
from plugrl_server.policy.denoising.denoising_policy_config import DenoisingPolicyConfig


@dataclasses.dataclass
class DiffusionPolicyConfig(DenoisingPolicyConfig):
    """A denoising diffusion (DDPM) over chunks with the cosine schedule; the network predicts the noise."""

    denoised_clip: float = 1.0
    """What a step takes the finished chunk for is clipped to this many half widths of the bounds."""
    min_sampling_std: float = 0.1
    """Least standard deviation of a denoising step while sampling: what explores."""

    def check(self) -> None:
        """Refuse numbers out of range."""
        super().check()
        for name in ("denoised_clip", "min_sampling_std"):
            value = getattr(self, name)
            require(
                0 < value < float("inf"),
                f"--policy.{name.replace('_', '-')} {value}: must be a finite number above 0.",
            )
