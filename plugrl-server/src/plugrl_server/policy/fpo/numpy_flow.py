"""Euler steps of a small velocity network in NumPy, where that is quicker than torch."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import nn

from plugrl_server.policy.fpo.silu_mlp import time_embedding

MOST_MULTIPLICATIONS = 64**3
"""A larger matrix product is left to torch: NumPy's BLAS would give it to a thread for each core."""


class NumpyFlow:
    """Runs a flow over NumPy views of a `silu_mlp`'s weights, for float32 on the CPU.

    For a few environments and the paper's 4 layers of 32 it takes a quarter of torch's time, which is all overhead: the
    part of the first layer that sees the observation is taken once for all steps. The views follow training, which
    changes weights in place, and are taken anew when a parameter's memory is replaced.

    Args:
        network: The velocity network; its inputs are condition, point and time embedding, in this order.
        numbers: Numbers in a point.
        num_steps: K.
        embedding: Numbers in a time embedding.
        scale: What the network's outputs are multiplied by.
    """

    def __init__(self, network: nn.Sequential, numbers: int, num_steps: int, embedding: int, scale: float) -> None:
        self._parameters = list(network.parameters())
        self._largest = max(parameter.numel() for parameter in self._parameters)
        self._pointers: list[int] = []
        self._weights: list[np.ndarray] = []
        self._biases: list[np.ndarray] = []
        self._numbers, self._num_steps, self._scale = numbers, num_steps, scale
        self._embedded = time_embedding(1 - torch.arange(num_steps) / num_steps, embedding).numpy()

    def usable(self, rows: int) -> bool:
        """Return whether NumPy can and should run the network as it is now, for this many rows."""
        if rows * self._largest > MOST_MULTIPLICATIONS:
            return False
        pointers = [parameter.data_ptr() for parameter in self._parameters]
        if pointers != self._pointers:
            self._pointers = pointers
            quick = all(p.device.type == "cpu" and p.dtype == torch.float32 for p in self._parameters)
            arrays = [parameter.detach().numpy() for parameter in self._parameters] if quick else []
            self._weights, self._biases = [weight.T for weight in arrays[::2]], arrays[1::2]
        return bool(self._weights)

    def __call__(self, condition: np.ndarray, x: np.ndarray, steps: Iterable[int]) -> Iterable[np.ndarray]:
        """Yield the mean of the next state for each of some steps, f4[n, numbers]; only where it is `usable`.

        Args:
            condition: f4[n, width].
            x: The state before the first of them, f4[n, numbers]; what is added to a yielded mean stays added.
            steps: Which of the K.
        """
        width = condition.shape[1]
        first = self._weights[0]
        of_condition, of_point = first[:width], first[width : width + self._numbers]
        given = condition @ of_condition + self._biases[0]
        of_times = self._embedded @ first[width + self._numbers :]
        for k in steps:
            values = x @ of_point
            values += given
            values += of_times[k]
            for weight, bias in zip(self._weights[1:], self._biases[1:], strict=True):
                values = _silu(values) @ weight
                values += bias
            values *= -self._scale / self._num_steps
            values += x
            x = values
            yield x


def _silu(values: np.ndarray) -> np.ndarray:
    """Return v / (1 + exp(-v)), by the tangent, which does not overflow; overwrites its argument."""
    values *= 0.5
    activated: np.ndarray = np.tanh(values)
    activated += 1
    activated *= values
    return activated
