"""Configuration that the actor-critic policies share."""

import dataclasses
from typing import Annotated, Literal

import tyro
from plugrl_protocol.spaces import ActionSpace

from plugrl_server.common.config_error import require
from plugrl_server.policy.base_policy import BaseTorchPolicyConfig


@dataclasses.dataclass
class ActorCriticConfig(BaseTorchPolicyConfig):
    """Two tanh MLPs over the states, concatenated in the order of their sorted names."""

    obs_dim: int | None = None
    """Summed width of the states that are read; default: what the first client sends."""
    action_dim: int | None = None
    """Numbers in one action (choices, for a discrete one); default: what the first client declares."""
    action_space: Annotated[ActionSpace | None, tyro.conf.Suppress] = None
    state_keys: tuple[str, ...] | None = None
    """States to read; default: all that the first client sends."""
    action_horizon: int = 1
    """Actions in a chunk."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of both networks."""
    normalize_observations: bool = True
    """Normalise observations by their running mean and variance, clipped to +-10."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the weights; other than float32 they are trained through float32 master copies."""

    def check(self) -> None:
        """Refuse sizes below 1."""
        super().check()
        for name in ("obs_dim", "action_dim", "action_horizon"):
            if (value := getattr(self, name)) is not None:
                require(value >= 1, f"--policy.{name.replace('_', '-')} {value}: must be at least 1.")
        require(
            all(size >= 1 for size in self.hidden_sizes),
            f"--policy.hidden-sizes {' '.join(map(str, self.hidden_sizes))}: every width must be at least 1.",
        )
        require(self.state_keys != (), "--policy.state-keys: name at least one state, or leave the flag out for all.")
