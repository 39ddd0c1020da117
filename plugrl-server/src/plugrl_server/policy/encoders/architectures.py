"""The convolutional networks for images, as numbers; free of torch."""

from typing import Literal, NamedTuple, TypeAlias

Shape: TypeAlias = tuple[int, int, int]
"""Height, width and channels of an image."""


class Convolution(NamedTuple):
    """A square convolution without padding, followed by a ReLU."""

    channels: int
    kernel: int
    stride: int


class Architecture(NamedTuple):
    """Convolutions, then one fully connected ReLU layer.

    Attributes:
        convolutions: From the image on.
        width: Outputs of the fully connected layer.
    """

    convolutions: tuple[Convolution, ...]
    width: int

    @property
    def smallest_side(self) -> int:
        """Pixels an image must have in either direction for one to be left after the last convolution."""
        side = 1
        for convolution in reversed(self.convolutions):
            side = (side - 1) * convolution.stride + convolution.kernel
        return side


ArchitectureName: TypeAlias = Literal["nature", "impala-small"]

ARCHITECTURES: dict[str, Architecture] = {
    "nature": Architecture((Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)), 512),
    "impala-small": Architecture((Convolution(16, 8, 4), Convolution(32, 4, 2)), 256),
}
"""`nature`: Mnih et al. 2015, the network of DQN. `impala-small`: Espeholt et al. 2018, figure 3 left,
without its LSTM."""
