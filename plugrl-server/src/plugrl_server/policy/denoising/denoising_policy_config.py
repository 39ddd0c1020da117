"""Configuration that the policies of a denoising chain share."""

import dataclasses
from typing import Annotated, ClassVar, Literal

import tyro
from plugrl_protocol.spaces import ActionSpace

from plugrl_server.common.config_error import require
from plugrl_server.policy.base_policy import BaseTorchPolicyConfig


@dataclasses.dataclass
class DenoisingPolicyConfig(BaseTorchPolicyConfig):
    """A chunk of actions of a Box space, made from noise in several steps."""

    action_kinds: ClassVar[tuple[str, ...]] = ("box",)

    obs_dim: int | None = None
    """Summed width of the states that are read; default: what the first client sends."""
    action_dim: int | None = None
    """Numbers in one action; default: what the first client declares."""
    action_space: Annotated[ActionSpace | None, tyro.conf.Suppress] = None
    state_keys: tuple[str, ...] | None = None
    """States to read; default: all that the first client sends."""
    action_horizon: int = 4
    """Actions in a chunk."""
    num_steps: int = 20
    """Denoising steps from noise to a chunk."""
    normalize_observations: bool = True
    """Normalise observations by their running mean and variance, clipped to +-10."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the weights; other than float32 they are trained through float32 master copies."""

    def check(self) -> None:
        """Refuse sizes below 1."""
        super().check()
        for name in ("obs_dim", "action_dim", "action_horizon", "num_steps"):
            if (value := getattr(self, name)) is not None:
                require(value >= 1, f"--policy.{name.replace('_', '-')} {value}: must be at least 1.")
        require(self.state_keys != (), "--policy.state-keys: name at least one state, or leave the flag out for all.")
