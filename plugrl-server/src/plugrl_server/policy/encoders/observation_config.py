"""Configuration of every policy that reads states and images; free of torch."""

import dataclasses
from typing import Annotated

import tyro

from plugrl_server.common.config_error import require
from plugrl_server.policy.base_policy import BaseTorchPolicyConfig
from plugrl_server.policy.encoders.architectures import ARCHITECTURES, ArchitectureName, Shape


@dataclasses.dataclass
class ObservationConfig(BaseTorchPolicyConfig):
    """What is read of an observation. The first client's observation fills what is None."""

    obs_dim: int | None = None
    """Summed width of the states that are read; default: what the first client sends."""
    state_keys: tuple[str, ...] | None = None
    """States to read; default: all that the first client sends. Without a name after it: none, for images alone."""
    image_keys: tuple[str, ...] | None = None
    """Images to read; default: all that the first client sends. Without a name after it: none, for states alone."""
    image_shapes: Annotated[dict[str, Shape] | None, tyro.conf.Suppress] = None
    image_encoder: ArchitectureName = "nature"
    """Convolutional network for each image: nature (Mnih 2015) or impala-small (Espeholt 2018)."""
    normalize_observations: bool = True
    """Normalise states by their running mean and variance, clipped to +-10."""

    def check(self) -> None:
        """Refuse sizes below 1, a policy that reads nothing, and images too small for the network."""
        super().check()
        if self.obs_dim is not None:
            least = 0 if self.image_keys else 1
            require(self.obs_dim >= least, f"--policy.obs-dim {self.obs_dim}: must be at least {least}.")
        require(
            self.state_keys != () or self.image_keys != (),
            "--policy.state-keys and --policy.image-keys: name at least one state or image, or leave the flags out "
            "for all.",
        )
        side = ARCHITECTURES[self.image_encoder].smallest_side
        for key, (height, width, channels) in (self.image_shapes or {}).items():
            require(
                min(height, width) >= side and channels >= 1,
                f"images.{key} [{height}, {width}, {channels}]: --policy.image-encoder {self.image_encoder} needs "
                f"{side}x{side} or more",
            )
