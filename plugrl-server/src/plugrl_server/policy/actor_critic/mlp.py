"""Tanh MLPs: built in torch, and run in NumPy where that is quicker."""

from collections.abc import Callable, Sequence

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
    """The forward pass of an MLP such as `tanh_mlp` over NumPy views of its weights, for float32 on the CPU.

    For a batch of one and 64-64 layers it takes a fraction of torch's time, which is all per-operation overhead. The
    views follow training, which changes weights in place, and are taken anew when a parameter's memory is replaced.

    Args:
        network: Linear layers with an activation between each two.
        activation: The activation in NumPy; called as `activation(values, out=values)`.
    """

    def __init__(self, network: nn.Sequential, activation: Callable[..., np.ndarray] = np.tanh) -> None:
        self._activation = activation
        self._parameters = list(network.parameters())
        self._rows = max(1, MOST_MULTIPLICATIONS // max(parameter.numel() for parameter in self._parameters))
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
        if len(inputs) <= self._rows:
            return self._outputs(inputs)
        parts = range(0, len(inputs), self._rows)
        return np.concatenate([self._outputs(inputs[start : start + self._rows]) for start in parts])

    def _outputs(self, values: np.ndarray) -> np.ndarray:
        for weight, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            values = values @ weight
            values += bias
            self._activation(values, out=values)
        values = values @ self._weights[-1]
        values += self._biases[-1]
        return values


MAX_WIDTH = 256
"""Wider layers are left to torch, whose matrix products then take longer than its overhead."""
MOST_MULTIPLICATIONS = 64**3
"""NumPy's BLAS gives a larger product to a thread for each core, whatever --torch-threads says, and those go on
spinning beside the clients (8 rows of a 256-256 net: 3 ms, not 60 us, on a busy machine): larger batches are split."""


def _is_quick(parameter: nn.Parameter) -> bool:
    narrow = max(parameter.shape, default=0) <= MAX_WIDTH
    return parameter.device.type == "cpu" and parameter.dtype == torch.float32 and narrow
