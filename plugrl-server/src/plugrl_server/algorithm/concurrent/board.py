"""What a learner shows to the process that acts: weights and counters, in memory that both share."""

import ctypes
from multiprocessing.context import SpawnContext
from typing import Any

import numpy as np
import torch

ALIGNMENT = 64
VERSION, UPDATES, HANDLED = range(3)
"""Places of the counters: versions of the weights, updates taken, bytes of messages handled."""
PATIENCE = 10.0
"""Longest time to wait for the other process to copy the weights, s; longer means that it died on it."""


class BoardError(Exception):
    """The weights cannot be read: the process that wrote them ended while it did."""


class Board:
    """Weights of one layout, with their version.

    One process writes and one reads. A lock is held while either copies, so that what is read is what was written at
    once, never half of it; a copy takes about a millisecond for each 10 MB. Nothing is left behind when both are gone,
    however they ended: the memory has no name.

    Args:
        context: Of the processes that share it; hand it to the other one when that is started.
        weights: A `state_dict` with the names, shapes and dtypes; its values are version 0.
    """

    def __init__(self, context: SpawnContext, weights: dict[str, torch.Tensor]) -> None:
        self._lock = context.Lock()
        self._counters = context.RawArray(ctypes.c_int64, 3)
        self._layout = [(name, tuple(tensor.shape), tensor.dtype) for name, tensor in weights.items()]
        self._memory = context.RawArray(ctypes.c_byte, max(1, sum(map(_padded, weights.values()))))
        self._map()
        self._write(weights)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("counters", "weights")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._map()

    def _map(self) -> None:
        """Lay arrays over the shared memory."""
        self.counters = np.frombuffer(memoryview(self._counters), np.int64)
        self.weights: dict[str, torch.Tensor] = {}
        start = 0
        for name, shape, dtype in self._layout:
            tensor = torch.empty(shape, dtype=dtype)
            if tensor.numel():
                flat = torch.frombuffer(self._memory, dtype=dtype, count=tensor.numel(), offset=start)
                tensor = flat.view(shape)
            self.weights[name] = tensor
            start += _padded(tensor)

    @property
    def version(self) -> int:
        """How often weights were published."""
        return int(self.counters[VERSION])

    def publish(self, weights: dict[str, torch.Tensor]) -> None:
        """Write the next version."""
        with self._lock:
            self._write(weights)
            self.counters[VERSION] += 1

    def read_into(self, policy: torch.nn.Module) -> int:
        """Load the newest weights into a policy, in place, and return their version.

        Raises:
            BoardError: The writer died while it wrote.
        """
        if not self._lock.acquire(timeout=PATIENCE):
            raise BoardError("the learner ended while it wrote weights")
        try:
            policy.load_state_dict(self.weights)
            return self.version
        finally:
            self._lock.release()

    @torch.no_grad()
    def _write(self, weights: dict[str, torch.Tensor]) -> None:
        for name, tensor in self.weights.items():
            tensor.copy_(weights[name])


def _padded(tensor: torch.Tensor) -> int:
    """Return the bytes a tensor takes, up to the next boundary."""
    return -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT
