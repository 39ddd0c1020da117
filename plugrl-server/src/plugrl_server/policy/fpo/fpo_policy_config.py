"""Configuration of the FPO policy and its variants."""

import dataclasses

from plugrl_server.common.config_error import require
from plugrl_server.policy.acceleration.acceleration_config import AccelerationConfig
from plugrl_server.policy.flow.flow_policy_config import FlowPolicyConfig
from plugrl_server.policy.registration import register_policy_config


@register_policy_config("fpo-policy")
@dataclasses.dataclass
class FPOPolicyConfig(AccelerationConfig, FlowPolicyConfig):
    """A velocity field and a value, each a SiLU MLP; the defaults are those of the FPO paper."""

    action_horizon: int = 1
    """Actions in a chunk."""
    actor_hidden_sizes: tuple[int, ...] = (32, 32, 32, 32)
    """Widths of the hidden layers of the velocity network."""
    critic_hidden_sizes: tuple[int, ...] = (256, 256, 256, 256, 256)
    """Widths of the hidden layers of the value network."""
    output_scale: float = 0.25
    """What the velocity network's outputs are multiplied by."""
    time_embedding: int = 8
    """Numbers that the time of the flow is embedded in: cosines and sines of doubling frequencies."""

    def check(self) -> None:
        """Refuse widths below 1, an embedding that is not even, and a scale that is not above 0."""
        super().check()
        for name in ("actor_hidden_sizes", "critic_hidden_sizes"):
            widths = getattr(self, name)
            require(
                all(width >= 1 for width in widths),
                f"--policy.{name.replace('_', '-')} {' '.join(map(str, widths))}: every width must be at least 1.",
            )
        require(
            self.time_embedding >= 2 and self.time_embedding % 2 == 0,
            f"--policy.time-embedding {self.time_embedding}: must be an even number of at least 2.",
        )
        require(
            0 < self.output_scale < float("inf"),
            f"--policy.output-scale {self.output_scale}: must be a finite number above 0.",
        )


@register_policy_config("fpo-policy", "exploring")
@dataclasses.dataclass
class FPOPolicyExploringConfig(FPOPolicyConfig):
    """For locomotion from few frames: wider, shallower networks, and a little noise in every Euler step.

    With the noise, chunks never become all the same.
    """

    exploration_noise: float = 0.3
    actor_hidden_sizes: tuple[int, ...] = (128, 128)
    critic_hidden_sizes: tuple[int, ...] = (64, 64)
    output_scale: float = 1.0


@register_policy_config("fpo-policy", "large")
@dataclasses.dataclass
class FPOPolicyLargeConfig(FPOPolicyConfig):
    """For chunked control learned from scratch, also by DPPO: a wide velocity network, chunks of 4, 20 Euler steps."""

    action_horizon: int = 4
    num_steps: int = 20
    exploration_noise: float = 1.0
    actor_hidden_sizes: tuple[int, ...] = (512, 512, 512)
    critic_hidden_sizes: tuple[int, ...] = (256, 256, 256)
    output_scale: float = 1.0
    time_embedding: int = 16
