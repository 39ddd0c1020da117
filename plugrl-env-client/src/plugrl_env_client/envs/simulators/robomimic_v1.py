"""`robomimic-v1`: the simulated tasks of robomimic (arXiv:2108.03298), in robosuite (package `robosuite`), no torch.

robomimic itself, which needs torch, only puts a layer of names over robosuite: the observations here have its names.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plugrl_env_client.envs.base_env import BaseEnv, EnvError
from plugrl_env_client.envs.gym_flags import GymFlags
from plugrl_env_client.registration import register_env, register_env_config

UID = "robomimic-v1"


@register_env_config(UID)
@dataclasses.dataclass
class RobomimicConfig(GymFlags):
    """Which task, what is observed of it, and how n of them are run.

    Observed: states `robot0_eef_pos`, `robot0_eef_quat`, `robot0_gripper_qpos` (and those of a second robot) and
    `object`, and an image `<camera>_image` for each camera. Cameras need a way to render without a screen:
    `MUJOCO_GL=egl` or `osmesa`.
    """

    name: str = "Lift"
    """A robosuite task: Lift, PickPlaceCan, NutAssemblySquare, ToolHang, TwoArmTransport, ..."""

    robots: tuple[str, ...] = ("Panda",)
    """One robot, or two for the tasks with two arms."""

    cameras: tuple[str, ...] = ()
    """Cameras to send: agentview, robot0_eye_in_hand, frontview, sideview, ..."""

    image_size: int = 84
    """Height and width of each image, in pixels."""

    horizon: int = 400
    """Steps of an episode; robomimic uses 700 for ToolHang and TwoArmTransport."""

    terminate_on_success: bool = True
    """End an episode with its success."""

    env_args: str | None = None
    """A robomimic dataset (.hdf5), or its `env_args` as JSON: task, robots and controller are those of the dataset.
    The robosuite release should be the dataset's own."""


@register_env(UID)
def make_robomimic(config: RobomimicConfig, num_envs: int) -> BaseEnv:
    """Build the environments.

    Raises:
        EnvError: there is no such task, the file cannot be read, or a number is out of range.
    """
    import robosuite

    from plugrl_env_client.envs.gym_adapter.making import make_gym_env, require_at_least, require_known
    from plugrl_env_client.envs.simulators.robomimic_task import ENV_ID

    require_at_least("--env.image-size", config.image_size, 1)
    require_at_least("--env.horizon", config.horizon, 1)
    name, arguments = config.name, {"robots": list(config.robots), "control_freq": 20, "reward_shaping": False}
    if config.env_args is not None:
        name, arguments = read_env_args(config.env_args)
    require_known(name, sorted(robosuite.ALL_ENVIRONMENTS), UID)
    defaults = {
        "task": name,
        "arguments": arguments,
        "cameras": config.cameras,
        "image_size": config.image_size,
        "terminate_on_success": config.terminate_on_success,
        "max_episode_steps": config.horizon,
    }
    env = make_gym_env(ENV_ID, num_envs, flags=config, defaults=defaults)
    env.env_id = f"robosuite/{name}"
    return env


def read_env_args(path: str) -> tuple[str, dict[str, Any]]:
    """The task and the arguments of `robosuite.make` that a robomimic dataset was recorded with.

    Args:
        path: a dataset (.hdf5, needs h5py), or JSON text that holds its `env_args`.

    Raises:
        EnvError: it cannot be read, or is neither.
    """
    try:
        text = _attribute(path) if Path(path).suffix in {".hdf5", ".h5"} else Path(path).read_text()
        found = json.loads(text)
    except (ImportError, KeyError, OSError, ValueError) as err:
        raise EnvError(f"--env.env-args {path}: {err}") from err
    if not isinstance(found, Mapping) or not {"env_name", "env_kwargs"} <= set(found):
        raise EnvError(f"--env.env-args {path}: expected a map with env_name and env_kwargs")
    return str(found["env_name"]), dict(found["env_kwargs"])


def _attribute(path: str) -> str:
    import h5py

    with h5py.File(path, "r") as file:
        return str(file["data"].attrs["env_args"])
