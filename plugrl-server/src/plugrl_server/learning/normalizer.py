"""The running normaliser, shared by observations and returns."""

from collections.abc import Callable
from typing import Self

import numpy as np
import torch
from torch import nn

CLIP = 10.0


class RunningNormalizer(nn.Module):
    """Running mean and variance of vectors, with their count; a module, so that a state_dict holds all three.

    It moves only in `update`, which learn code calls between iterations: within an iteration the policy stays the same
    function of the observation, and the first probability ratio is exactly 1. Until the first update it only clips.

    Args:
        shape: Shape of one vector; () for scalars.
        clip: Normalised values are clipped to +-clip.
        epsilon: Added to the variance.

    Attributes:
        mean: Float64 mean.
        variance: Float64 biased variance.
        count: Float64 number of vectors seen.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    count: torch.Tensor

    def __init__(self, shape: tuple[int, ...], clip: float = CLIP, epsilon: float = 1e-8) -> None:
        super().__init__()
        self.clip = clip
        self.epsilon = epsilon
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.shift, self.scale = self.mean.float(), self.variance.float()
        self.register_load_state_dict_post_hook(lambda *_: self._refresh())  # type: ignore[no-untyped-call]
        self._refresh()

    @torch.no_grad()
    def update(self, vectors: torch.Tensor) -> None:
        """Take N more vectors [N, *shape] into account (Chan, Golub and LeVeque 1979, parallel form)."""
        if len(vectors) == 0:
            return
        vectors = vectors.to(self.mean.device, torch.float64)
        mean, variance, count = vectors.mean(0), vectors.var(0, correction=0), len(vectors)
        total, delta = self.count + count, mean - self.mean
        # Until the first update the variance of 1 is a placeholder: `count` of 0 takes it out of the sum.
        spread = self.variance * self.count + variance * count + delta**2 * self.count * count / total
        self.mean += delta * count / total
        self.variance.copy_(spread / total)
        self.count.copy_(total)
        self._refresh()

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return vectors [..., *shape] normalised and clipped, float32."""
        return ((vectors - self.shift) * self.scale).clamp_(-self.clip, self.clip)

    def normalize_array(self, vectors: np.ndarray) -> None:
        """Normalise and clip f4[n, *shape] in place, by the same statistics; only where they are on the CPU."""
        vectors -= self.shift.numpy()
        vectors *= self.scale.numpy()
        np.minimum(vectors, self.clip, out=vectors)
        np.maximum(vectors, -self.clip, out=vectors)

    def rescale(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return vectors divided by the standard deviation, not centred, and clipped: what rewards are scaled by."""
        return (vectors * self.scale).clamp_(-self.clip, self.clip)

    def _refresh(self) -> None:
        """Derive what `forward` multiplies with; in place, so that views on it (NumPy's) stay valid."""
        if self.scale.device != self.variance.device:
            self.shift, self.scale = self.mean.float(), self.variance.float()
        self.shift.copy_(self.mean)
        self.scale.copy_((self.variance + self.epsilon).rsqrt())

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:  # noqa: ARG002
        """Follow a move to a device, but never a cast: a count in bfloat16 stops counting at 256."""
        device = fn(torch.zeros((), device=self.mean.device)).device
        for name, buffer in list(self._buffers.items()):
            self._buffers[name] = None if buffer is None else buffer.to(device)
        self._refresh()
        return self

    def extra_repr(self) -> str:
        """Return the shape and the clip, for `repr`."""
        return f"shape={tuple(self.mean.shape)}, clip={self.clip}"
