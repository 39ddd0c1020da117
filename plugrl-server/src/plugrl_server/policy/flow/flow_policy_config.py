"""Configuration that flow-matching policies share."""

import dataclasses

from plugrl_server.common.config_error import require
from plugrl_server.policy.denoising.denoising_policy_config import DenoisingPolicyConfig


@dataclasses.dataclass
class FlowPolicyConfig(DenoisingPolicyConfig):
    """A chunk of actions, carried from noise by a velocity field."""

    num_steps: int = 10
    """Euler steps from noise to a chunk."""
    exploration_noise: float = 0.0
    """Noise added along the flow: each Euler step adds this over the root of the number of steps. FPO needs none."""

    def check(self) -> None:
        """Refuse noise that is no finite number of at least 0."""
        super().check()
        require(
            0 <= self.exploration_noise < float("inf"),
            f"--policy.exploration-noise {self.exploration_noise}: must be a finite number of at least 0.",
        )
