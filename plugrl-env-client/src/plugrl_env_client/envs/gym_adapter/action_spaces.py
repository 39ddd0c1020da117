"""Gymnasium action spaces as the protocol declares them (SPEC 10.2)."""

from typing import Any

import numpy as np
from gymnasium import spaces
from plugrl_protocol.spaces import ActionSpace, BoxSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace

from plugrl_env_client.envs.base_env import EnvError


def action_space(space: "spaces.Space[Any]", env_id: str) -> ActionSpace:
    """The declaration of one env's action space.

    Raises:
        EnvError: the protocol has no word for it.
    """
    if isinstance(space, spaces.Box) and np.dtype(space.dtype).kind in "iuf":
        return BoxSpace(shape=space.shape, dtype=np.dtype(space.dtype), low=space.low, high=space.high)
    if isinstance(space, spaces.Discrete):
        return DiscreteSpace(n=int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete) and not np.any(space.start):
        return MultiDiscreteSpace(nvec=space.nvec)
    if isinstance(space, spaces.MultiBinary) and isinstance(space.n, (int, np.integer)):
        return MultiBinarySpace(n=int(space.n))
    raise EnvError(
        f"{env_id} takes {space}; actions can be Box (of int, uint or float), Discrete, MultiDiscrete (from 0) or "
        "MultiBinary (one axis). Wrap the env, for example with gymnasium.wrappers.TransformAction"
    )
