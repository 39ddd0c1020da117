"""The networks of soft actor-critic: ReLU MLPs with torch's initial weights."""

import itertools
from collections.abc import Sequence

import torch
from torch import nn


def relu_mlp(inputs: int, hidden_sizes: Sequence[int], outputs: int) -> nn.Sequential:
    """Return Linear-ReLU-...-Linear with torch's own initial weights."""
    layers: list[nn.Module] = []
    for size in hidden_sizes:
        layers += [nn.Linear(inputs, size), nn.ReLU(inplace=True)]
        inputs = size
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


class TwinMLP(nn.Module):
    """Two equal ReLU MLPs of one output whose weights lie side by side, so that one product serves both.

    Args:
        inputs: Width of the input.
        hidden_sizes: Widths of the hidden layers.

    Attributes:
        weights: Of each layer, [2, inputs, outputs].
        biases: Of each layer, [2, 1, outputs].
    """

    def __init__(self, inputs: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        widths = [inputs, *hidden_sizes, 1]
        shapes = list(itertools.pairwise(widths))
        self.weights = nn.ParameterList(_uniform((2, fan_in, fan_out), fan_in) for fan_in, fan_out in shapes)
        self.biases = nn.ParameterList(_uniform((2, 1, fan_out), fan_in) for fan_in, fan_out in shapes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs [2, n] of both networks for inputs [n, inputs]."""
        values = inputs.expand(2, *inputs.shape)
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = torch.baddbmm(bias, values, weight)
            if layer < last:
                values = values.relu_()
        return values.squeeze(-1)


def _uniform(shape: tuple[int, ...], fan_in: int) -> nn.Parameter:
    """Return a parameter as nn.Linear begins: uniform within 1 over the root of its inputs."""
    bound = fan_in**-0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
