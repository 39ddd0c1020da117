"""The probe environment, as far as the checker has to know it: how long its episodes are, and what its actions tell.

SPEC 8.1: env i's episode lasts 3 + 2*(i mod 3) steps and terminates; it shows `t` f8[n,1], the steps taken in this
episode, and `a` f8[n,d], the last action applied (d may be 1 before the width is known); reward 1 a step.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

MAX_ENVS = 1000
MAX_WIDTH = 10
_STEP, _ENV = 10_000, 10


def episode_length(env_index: int) -> int:
    """Steps of each episode of an env."""
    return 3 + 2 * (env_index % 3)


def coded_action(env_indices: Sequence[int], horizon: int, width: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Actions [H,n,width] that tell where they belong: element [k,row,d] for env j is 10000k + 10j + d.

    Args:
        env_indices: The envs of the infer, in its order, each below `MAX_ENVS`.
        horizon: H.
        width: At most `MAX_WIDTH`.
        dtype: One that holds the numbers exactly.
    """
    step, row, element = np.ogrid[:horizon, : len(env_indices), :width]
    coded: np.ndarray = (_STEP * step + _ENV * np.asarray(env_indices)[row] + element).astype(dtype)
    return coded
