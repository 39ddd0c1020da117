"""SiLU MLPs, and the embedding of the flow's time."""

from collections.abc import Sequence

import torch
from torch import nn


def silu_mlp(inputs: int, hidden_sizes: Sequence[int], outputs: int) -> nn.Sequential:
    """Return Linear-SiLU-...-Linear with orthogonal weights of gain 1 and zero biases."""
    layers: list[nn.Module] = []
    for size in hidden_sizes:
        layers += [_orthogonal(nn.Linear(inputs, size)), nn.SiLU()]
        inputs = size
    return nn.Sequential(*layers, _orthogonal(nn.Linear(inputs, outputs)))


def time_embedding(t: torch.Tensor, numbers: int) -> torch.Tensor:
    """Return cosines and sines of t times 1, 2, 4, ..., f4[N, numbers], of times f4[N]."""
    angles = t[:, None] * 2.0 ** torch.arange(numbers // 2, device=t.device)
    return torch.cat([angles.cos(), angles.sin()], -1)


def _orthogonal(layer: nn.Linear) -> nn.Linear:
    nn.init.orthogonal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
