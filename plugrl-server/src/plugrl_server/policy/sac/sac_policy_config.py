"""Configuration of the policy of soft actor-critic."""

import dataclasses
from typing import Annotated, ClassVar, Literal

import tyro
from plugrl_protocol.spaces import ActionSpace

from plugrl_server.common.config_error import require
from plugrl_server.policy.acceleration.acceleration_config import AccelerationConfig
from plugrl_server.policy.encoders.observation_config import ObservationConfig
from plugrl_server.policy.registration import register_policy_config


@register_policy_config("sac-policy")
@dataclasses.dataclass
class SACPolicyConfig(AccelerationConfig, ObservationConfig):
    """A Gaussian squashed by tanh into the bounds of a Box space, and twin critics of its chunks."""

    action_kinds: ClassVar[tuple[str, ...]] = ("box",)

    normalize_observations: bool = False
    """Normalise states by their running mean and variance, clipped to +-10."""
    action_dim: int | None = None
    """Numbers in one action; default: what the first client declares."""
    action_space: Annotated[ActionSpace | None, tyro.conf.Suppress] = None
    action_horizon: int = 1
    """Actions in a chunk."""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of the actor and of each critic."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the weights; other than float32 they are trained through float32 master copies."""

    def check(self) -> None:
        """Refuse sizes below 1."""
        super().check()
        for name in ("action_dim", "action_horizon"):
            if (value := getattr(self, name)) is not None:
                require(value >= 1, f"--policy.{name.replace('_', '-')} {value}: must be at least 1.")
        require(
            len(self.hidden_sizes) >= 1 and all(size >= 1 for size in self.hidden_sizes),
            f"--policy.hidden-sizes {' '.join(map(str, self.hidden_sizes))}: at least one width, each at least 1.",
        )
