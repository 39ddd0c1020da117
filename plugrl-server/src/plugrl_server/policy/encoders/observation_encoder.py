"""From an observation's states and images to one vector."""

from typing import Any

import torch
from torch import nn

from plugrl_server.policy.encoders.architectures import ARCHITECTURES, Architecture, Shape
from plugrl_server.policy.encoders.initialisation import orthogonal
from plugrl_server.policy.encoders.observation_config import ObservationConfig


class ImageEncoder(nn.Module):
    """The convolutional network of one image: uint8 [n, h, w, c] in, [n, width] out.

    Pixels are scaled to [0, 1] here, on the device, so that buffers and transfers carry one byte a number. Seen as
    [n, c, h, w], the image is in torch's channels-last layout as it stands: nothing is copied.
    """

    def __init__(self, architecture: Architecture, shape: Shape) -> None:
        super().__init__()
        height, width, channels = shape
        layers: list[nn.Module] = []
        for outputs, kernel, stride in architecture.convolutions:
            layers += [orthogonal(nn.Conv2d(channels, outputs, kernel, stride)), nn.ReLU()]
            channels = outputs
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        layers += [nn.Flatten(), orthogonal(nn.Linear(channels * height * width, architecture.width)), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return f[n, width] of uint8 images [n, h, w, c], in the dtype of the weights."""
        dtype = next(self.parameters()).dtype
        encoded: torch.Tensor = self.layers(image.permute(0, 3, 1, 2).to(dtype) / 255)
        return encoded


class ObservationEncoder(nn.Module):
    """Normalised states pass through; each image goes through a convolutional network of its own; all side by side.

    Without images it has no parameters and returns the states as they are.

    Args:
        config: Names the network.
        state_dim: Summed width of the states.
        image_shapes: Height, width and channels of each image that is read.

    Attributes:
        out_dim: Width of the vector.
    """

    def __init__(self, config: ObservationConfig, state_dim: int, image_shapes: dict[str, Shape]) -> None:
        super().__init__()
        architecture = ARCHITECTURES[config.image_encoder]
        self._keys = tuple(image_shapes)
        self.images = nn.ModuleList(ImageEncoder(architecture, shape) for shape in image_shapes.values())
        self.out_dim = state_dim + len(image_shapes) * architecture.width

    def forward(self, features: Any) -> torch.Tensor:
        """Return f[n, out_dim] of what `ReadsObservations.features` returned."""
        if isinstance(features, torch.Tensor):
            return features
        encoded = [encoder(features["images"][key]) for key, encoder in zip(self._keys, self.images, strict=True)]
        if "states" in features:
            encoded.insert(0, features["states"])
        return torch.cat(encoded, -1) if len(encoded) > 1 else encoded[0]
