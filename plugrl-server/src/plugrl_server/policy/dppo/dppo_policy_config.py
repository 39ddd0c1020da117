"""Configuration of the diffusion MLP."""

import dataclasses

from plugrl_server.common.config_error import require
from plugrl_server.policy.acceleration.acceleration_config import AccelerationConfig
from plugrl_server.policy.diffusion.diffusion_policy_config import DiffusionPolicyConfig
from plugrl_server.policy.registration import register_policy_config


@register_policy_config("dppo-policy")
@dataclasses.dataclass
class DPPOPolicyConfig(AccelerationConfig, DiffusionPolicyConfig):
    """A diffusion over chunks by residual MLPs, sized as in the DPPO paper's locomotion tasks."""

    actor_hidden_sizes: tuple[int, ...] = (512, 512, 512)
    """Widths of the hidden layers of the network that predicts the noise."""
    critic_hidden_sizes: tuple[int, ...] = (256, 256, 256)
    """Widths of the hidden layers of the value network."""
    time_embedding: int = 16
    """Numbers in the embedding of the denoising step; even."""

    def check(self) -> None:
        """Refuse sizes that make no network."""
        super().check()
        for name in ("actor_hidden_sizes", "critic_hidden_sizes"):
            sizes = getattr(self, name)
            require(
                len(sizes) > 0 and all(size >= 1 for size in sizes),
                f"--policy.{name.replace('_', '-')} {' '.join(map(str, sizes))}: name widths of at least 1.",
            )
        require(
            self.time_embedding >= 4 and self.time_embedding % 2 == 0,
            f"--policy.time-embedding {self.time_embedding}: must be an even number of at least 4.",
        )


@register_policy_config("dppo-policy", "small")
@dataclasses.dataclass
class DPPOPolicySmallConfig(DPPOPolicyConfig):
    """Small networks and a short chain, for tasks of a few numbers and for tests."""

    action_horizon: int = 1
    num_steps: int = 5
    actor_hidden_sizes: tuple[int, ...] = (64, 64, 64)
    critic_hidden_sizes: tuple[int, ...] = (64, 64, 64)
