"""Configuration that the actor-critic policies share."""

import dataclasses
from typing import Annotated, Literal

import tyro
from plugrl_protocol.spaces import ActionSpace

from plugrl_server.common.config_error import require
from plugrl_server.policy.acceleration.acceleration_config import AccelerationConfig
from plugrl_server.policy.encoders.observation_config import ObservationConfig


@dataclasses.dataclass
class ActorCriticBaseConfig(AccelerationConfig, ObservationConfig):
    """What an actor-critic policy has whatever its networks: chunks, and the type of the weights."""

    action_dim: int | None = None
    """Numbers in one action (choices, for a discrete one); default: what the first client declares."""
    action_space: Annotated[ActionSpace | None, tyro.conf.Suppress] = None
    action_horizon: int = 1
    """Actions in a chunk."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the weights; other than float32 they are trained through float32 master copies."""

    def check(self) -> None:
        """Refuse sizes below 1."""
        super().check()
        for name in ("action_dim", "action_horizon"):
            if (value := getattr(self, name)) is not None:
                require(value >= 1, f"--policy.{name.replace('_', '-')} {value}: must be at least 1.")


@dataclasses.dataclass
class ActorCriticConfig(ActorCriticBaseConfig):
    """Two tanh MLPs over the states, side by side in the order of their names, and what a CNN makes of each image."""

    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of both networks."""

    def check(self) -> None:
        """Refuse sizes below 1."""
        super().check()
        require(
            all(size >= 1 for size in self.hidden_sizes),
            f"--policy.hidden-sizes {' '.join(map(str, self.hidden_sizes))}: every width must be at least 1.",
        )
