"""What the simulators' environments share: spaces of what is seen, cameras, and where robosuite draws its numbers."""

import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium import spaces

from plugrl_env_client.envs.base_env import EnvError

_LONGEST = 400


def image_space(size: int) -> spaces.Box:
    """An RGB image of `size` by `size` pixels."""
    return spaces.Box(0, 255, (size, size, 3), np.uint8)


def state_space(width: int) -> spaces.Box:
    """`width` numbers without bounds."""
    return spaces.Box(-np.inf, np.inf, (width,), np.float64)


def sentence_space() -> spaces.Text:
    """An instruction in words."""
    return spaces.Text(_LONGEST, min_length=0, charset=string.printable)


def require_cameras(cameras: Sequence[str], known: Sequence[str]) -> None:
    """Refuse cameras that a scene does not have, or that are named twice.

    Raises:
        EnvError: names the flag and the cameras that there are.
    """
    for at, camera in enumerate(cameras):
        if camera not in known:
            raise EnvError(f"--env.cameras {camera}: there is no such camera; known: {', '.join(known)}")
        if camera in cameras[:at]:
            raise EnvError(f"--env.cameras {camera}: named twice")


@contextmanager
def drawing_from(rng: np.random.Generator, sim: Any) -> Iterator[None]:
    """Make a robosuite simulation draw from `rng` inside the block.

    Up to 1.4 robosuite draws from NumPy's global generator, which all simulations of a process would share; from 1.5 on
    each has a generator of its own, which its parts hold on to and which is therefore put into a new state, not
    replaced.
    """
    seed = int(rng.integers(2**32))
    own = getattr(sim, "rng", None)
    if own is not None:
        own.bit_generator.state = type(own.bit_generator)(seed).state
    before = np.random.get_state()  # noqa: NPY002 - what robosuite uses
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def robot_states(observed: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The states of robomimic's low-dimensional datasets: hands and grippers of all robots, and `object`."""
    hand = ("eef_pos", "eef_quat", "gripper_qpos")
    found = {
        name: np.asarray(value, np.float64)
        for name, value in observed.items()
        if name.startswith("robot") and name.endswith(hand)
    }
    if "object-state" in observed:
        found["object"] = np.asarray(observed["object-state"], np.float64)
    return found


def succeeded(sim: Any) -> bool:
    """Whether a robosuite simulation's own check says that the task is done."""
    verdict = sim._check_success()
    return bool(verdict["task"] if isinstance(verdict, Mapping) else verdict)
