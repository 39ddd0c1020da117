"""Tanh MLPs: built in torch, and run in NumPy where that is quicker."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from plugrl_server.policy.encoders.initialisation import orthogonal


def tanh_mlp(inputs: int, hidden_sizes: Sequence[int], outputs: int, gain: float) -> nn.Sequential:
    """Return Linear-Tanh-...-Linear with orthogonal weights (gain sqrt 2, the last one's as given) and zero biases."""
    layers: list[nn.Module] = []
    for size in hidden_sizes:
        layers += [orthogonal(nn.Linear(inputs, size)), nn.Tanh()]
        inputs = size
    return nn.Sequential(*layers, orthogonal(nn.Linear(inputs, outputs), gain))


class NumpyMLP:
    """The forward pass of a `tanh_mlp` over NumPy views of its weights, for float32 on the CPU.

    For a batch of one and 64-64 layers it takes a fraction of torch's time, which is all per-operation overhead. The
    views follow training, which changes weights in place, and are taken anew when a parameter's memory is replaced.
    """

    def __init__(self, network: nn.Sequential) -> None:
        self._parameters = list(network.parameters())
        self._pointers: list[int] = []
        self._weights: list[np.ndarray] = []
        self._biases: list[np.ndarray] = []

    @property
    def usable(self) -> bool:
        """Whether NumPy can and should run the network as it is now."""
        pointers = [parameter.data_ptr() for parameter in self._parameters]
        if pointers != self._pointers:
            self._pointers = pointers
            quick = all(map(_is_quick, self._parameters))
            arrays = [parameter.detach().numpy() for parameter in self._parameters] if quick else []
            self._weights, self._biases = [weight.T for weight in arrays[::2]], arrays[1::2]
        return bool(self._weights)

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Return the outputs f4[n, outputs] of inputs f4[n, inputs]; only where it is `usable`."""
        values: np.ndarray = inputs
        for weight, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            values = values @ weight
            values += bias
            np.tanh(values, out=values)
        values = values @ self._weights[-1]
        values += self._biases[-1]
        return values


MAX_WIDTH = 256
"""Wider layers are left to torch, whose matrix products then take longer than its overhead."""


def _is_quick(parameter: nn.Parameter) -> bool:
    narrow = max(parameter.shape, default=0) <= MAX_WIDTH
    return parameter.device.type == "cpu" and parameter.dtype == torch.float32 and narrow
