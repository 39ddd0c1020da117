"""Action spaces as policies meet them: head sizes, and actions as an environment takes them."""

import math

import numpy as np
from plugrl_protocol.spaces import ActionSpace, BoxSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace

POLICY_FOR_KIND = {
    "box": "gaussian-policy",
    "discrete": "categorical-policy",
    "multi_discrete": "categorical-policy",
    "multi_binary": "categorical-policy",
}
"""Kind of action space -> the built-in policy that acts there: what advice names."""


def action_dim(space: ActionSpace) -> int:
    """Return what a policy's `action_dim` must be: the numbers in one action, or the choices of all its parts."""
    if isinstance(space, BoxSpace):
        return math.prod(space.shape)
    return sum(choices(space))


def choices(space: ActionSpace) -> tuple[int, ...]:
    """Return how many choices each part of an action of a non-Box space has.

    Raises:
        ValueError: It is a Box space.
    """
    if isinstance(space, DiscreteSpace):
        return (space.n,)
    if isinstance(space, MultiDiscreteSpace):
        return tuple(int(n) for n in space.nvec.ravel())
    if isinstance(space, MultiBinarySpace):
        return (2,) * space.n
    raise ValueError(f"{space} has no choices.")


def required_box(space: ActionSpace, numbers: int, policy: str) -> BoxSpace:
    """Return a declared space where it is a Box of so many numbers, which is what this policy acts in.

    Raises:
        ValueError: It is none, or has another size.
    """
    if not isinstance(space, BoxSpace):
        raise ValueError(f"{policy} needs a Box action space, got {space}")
    if action_dim(space) != numbers:
        raise ValueError(f"action_dim {action_dim(space)}, this run has {numbers}")
    return space


def to_env_actions(space: ActionSpace | None, action: np.ndarray) -> np.ndarray:
    """Return a policy's actions as the environments take them: the declared shape, dtype, bounds and `start`.

    Args:
        space: The declared action space; None leaves the actions as they are.
        action: [n, H, ...]; a Discrete space takes [n, H] and [n, H, 1], any other an action of the right size.

    Returns:
        [n, H, *space.shape] of the space's dtype. Box: rounded for an integer dtype, then clipped to the bounds.
        Discrete: `start` added. Floats that hold NaN stay floats, so that the fault is seen.

    Raises:
        ValueError: The actions have another size, or are no integers where the space needs them.
    """
    if space is None:
        return action
    shape = (*action.shape[:2], *space.shape)
    if action.ndim < 2 or action.size != math.prod(shape):
        raise ValueError(
            f"The policy's actions have shape {list(action.shape[2:])}, {space} needs {list(space.shape)}."
        )
    action = action.reshape(shape)
    if isinstance(space, BoxSpace):
        return _into_box(space, action)
    if action.dtype.kind == "f" and np.isnan(action).any():
        return action
    if action.dtype.kind not in "iub":
        raise ValueError(f"The policy's actions are {action.dtype}, {space} needs integers.")
    start = space.start if isinstance(space, DiscreteSpace) else 0
    return (action + start).astype(space.dtype, copy=False)


def _into_box(space: BoxSpace, action: np.ndarray) -> np.ndarray:
    if space.dtype.kind in "iu" and action.dtype.kind == "f":
        if np.isnan(action).any():
            return action  # no integer says so; the server ends the run on actions that are not finite
        action = np.rint(np.clip(action, space.low.astype(np.float64), space.high.astype(np.float64)))
    clipped: np.ndarray = np.maximum(np.minimum(action.astype(space.dtype, copy=False), space.high), space.low)
    return clipped
