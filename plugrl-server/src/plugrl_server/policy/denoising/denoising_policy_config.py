"""Configuration that the policies of a denoising chain share."""

import dataclasses
from typing import Annotated, ClassVar, Literal

import tyro
from plugrl_protocol.spaces import ActionSpace

from plugrl_server.common.config_error import require
from plugrl_server.policy.encoders.observation_config import ObservationConfig


@dataclasses.dataclass
class DenoisingPolicyConfig(ObservationConfig):
    """A chunk of actions of a Box space, made from noise in several steps."""

    action_kinds: ClassVar[tuple[str, ...]] = ("box",)

    action_dim: int | None = None
    """Numbers in one action; default: what the first client declares."""
    action_space: Annotated[ActionSpace | None, tyro.conf.Suppress] = None
    action_horizon: int = 4
    """Actions in a chunk."""
    num_steps: int = 20
    """Denoising steps from noise to a chunk."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the weights; other than float32 they are trained through float32 master copies."""

    def check(self) -> None:
        """Refuse sizes below 1."""
        super().check()
        for name in ("action_dim", "action_horizon", "num_steps"):
            if (value := getattr(self, name)) is not None:
                require(value >= 1, f"--policy.{name.replace('_', '-')} {value}: must be at least 1.")
