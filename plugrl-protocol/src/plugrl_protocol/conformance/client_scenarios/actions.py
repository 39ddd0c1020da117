"""The actions of watch mode: something harmless, in the space that the client has declared."""

from typing import Any

import numpy as np

from plugrl_protocol.spaces import ActionSpace, BoxSpace, DiscreteSpace, MultiDiscreteSpace


def plain_actions(horizon: int, rows: int, width: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Actions [H,n,width], or [H,n] if the width is 0: floats within -0.5..0.5, ints and bools 0 or 1."""
    shape = (horizon, rows, width) if width else (horizon, rows)
    return _wave(shape, dtype)


def space_actions(horizon: int, rows: int, space: ActionSpace) -> np.ndarray:
    """Actions [H,n,*space.shape] inside a declared space, in its dtype (SPEC 10.2)."""
    shape = (horizon, rows, *space.shape)
    if isinstance(space, BoxSpace):
        inside = np.clip(_wave(shape, np.dtype(np.float64)), space.low, space.high)
        return np.asarray(np.clip(inside.astype(space.dtype), space.low, space.high))
    if isinstance(space, DiscreteSpace):
        return np.asarray(space.start + _steps(shape) % space.n)
    if isinstance(space, MultiDiscreteSpace):
        return np.asarray(_steps(shape) % space.nvec)
    return (_steps(shape) % 2).astype(space.dtype)


def _steps(shape: tuple[int, ...]) -> np.ndarray:
    step = np.arange(shape[0], dtype=np.int64).reshape(-1, *[1] * (len(shape) - 1))
    return np.broadcast_to(step, shape).copy()


def _wave(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind == "f":
        wave: np.ndarray = (0.5 * np.sin(_steps(shape))).astype(dtype)
        return wave
    return (_steps(shape) % 2).astype(dtype)
