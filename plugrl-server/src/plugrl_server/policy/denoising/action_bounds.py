"""Chunks in units in which an action space's bounds are -1 and 1."""

import numpy as np
from plugrl_protocol.spaces import BoxSpace

WIDEST = float(np.finfo(np.float32).max) / 4
"""Half the width of an interval that is taken for no bound: its numbers would overflow."""


class ActionBounds:
    """The affine map between the bounds of a Box and [-1, 1], for each number of an action.

    Numbers without two finite bounds pass as they are.

    Args:
        space: The declared space; None where nothing is declared, and everything passes.
        action_dim: Numbers in one action.
    """

    def __init__(self, space: BoxSpace | None, action_dim: int) -> None:
        self.centre, self.half_width = np.zeros(action_dim, np.float32), np.ones(action_dim, np.float32)
        if space is None:
            return
        low, high = (bound.reshape(-1).astype(np.float64) for bound in (space.low, space.high))
        with np.errstate(over="ignore", invalid="ignore"):
            centre, half_width = (low + high) / 2, (high - low) / 2
        bounded = np.isfinite(low) & np.isfinite(high) & (half_width > 0) & (half_width < WIDEST)
        self.centre[bounded] = centre[bounded]
        self.half_width[bounded] = half_width[bounded]

    def denormalize(self, chunks: np.ndarray) -> np.ndarray:
        """Return chunks f4[..., action_dim] in the environment's own units."""
        actions: np.ndarray = chunks * self.half_width + self.centre
        return actions

    def normalize(self, actions: np.ndarray) -> np.ndarray:
        """Return actions f4[..., action_dim] in units of the bounds: the inverse of `denormalize`."""
        chunks: np.ndarray = (actions - self.centre) / self.half_width
        return chunks
