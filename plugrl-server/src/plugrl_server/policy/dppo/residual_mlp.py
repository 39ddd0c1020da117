"""MLPs with residual blocks, and the embedding of a denoising step."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

LONGEST_PERIOD = 10_000.0


class ResidualBlock(nn.Module):
    """Two layers with the activation before each, added to their input (He et al. 2016, pre-activation)."""

    def __init__(self, width: int, hidden: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.Sequential(activation(), nn.Linear(width, hidden), activation(), nn.Linear(hidden, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [N, width] for [N, width]."""
        added: torch.Tensor = x + self.layers(x)
        return added


def residual_mlp(inputs: int, sizes: Sequence[int], outputs: int, activation: type[nn.Module]) -> nn.Sequential:
    """Return a linear layer, the other hidden layers, and a linear layer without an activation before it.

    Hidden layers after the first are taken two at a time as a residual block, where the second is as wide as the
    block's input; any other follows its activation as it is.
    """
    layers: list[nn.Module] = [nn.Linear(inputs, sizes[0])]
    width, rest = sizes[0], list(sizes[1:])
    while rest:
        if len(rest) > 1 and rest[1] == width:
            layers.append(ResidualBlock(width, rest[0], activation))
            del rest[:2]
        else:
            layers += [activation(), nn.Linear(width, rest[0])]
            width = rest.pop(0)
    return nn.Sequential(*layers, nn.Linear(width, outputs))


class StepEmbedding(nn.Module):
    """Sines and cosines of the steps left before the chunk is done, through a small MLP.

    Args:
        num_steps: K.
        dim: Numbers in an embedding, even.
    """

    table: torch.Tensor

    def __init__(self, num_steps: int, dim: int) -> None:
        super().__init__()
        rates = LONGEST_PERIOD ** (-np.arange(dim // 2) / (dim // 2 - 1))
        angles = np.arange(num_steps)[::-1, None] * rates
        table = np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32)
        self.register_buffer("table", torch.from_numpy(table), persistent=False)
        self.layers = nn.Sequential(nn.Linear(dim, 2 * dim), nn.Mish(), nn.Linear(2 * dim, dim))

    def forward(self, k: torch.Tensor) -> torch.Tensor:
        """Return [N, dim] for steps i8[N]; all K are embedded once, since N is mostly larger."""
        embedded: torch.Tensor = self.layers(self.table)[k]
        return embedded
