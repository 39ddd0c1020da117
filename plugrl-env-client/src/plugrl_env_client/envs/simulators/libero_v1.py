"""`libero-v1`: LIBERO's 130 tasks in language, with a tabletop Panda (arXiv:2306.03310; package `hf-libero`)."""

import dataclasses
from typing import Literal

from plugrl_env_client.envs.base_env import BaseEnv, EnvError
from plugrl_env_client.envs.gym_flags import GymFlags
from plugrl_env_client.registration import register_env, register_env_config

UID = "libero-v1"
# Longer than the longest demonstration of each suite, as OpenVLA and openpi evaluate them.
HORIZONS = {"libero_spatial": 220, "libero_object": 280, "libero_goal": 300, "libero_10": 520, "libero_90": 400}
CAMERAS = ("agentview", "robot0_eye_in_hand", "frontview", "birdview", "sideview")


@register_env_config(UID)
@dataclasses.dataclass
class LiberoConfig(GymFlags):
    """Which tasks, what is observed of them, and how n of them are run.

    Observed: images `agentview_image` and `robot0_eye_in_hand_image`, states `robot0_eef_pos`, `robot0_eef_quat`,
    `robot0_gripper_qpos` and `state` (8 numbers: position, rotation as axis times angle, fingers), and the instruction
    as text. Rendering needs no screen with `MUJOCO_GL=egl` (or `osmesa`); `LIBERO_CONFIG_PATH` is where LIBERO
    remembers its folders.
    """

    suite: Literal["libero_spatial", "libero_object", "libero_goal", "libero_10", "libero_90"] = "libero_spatial"
    """A suite of tasks."""

    task_ids: tuple[int, ...] = ()
    """Tasks of the suite by number. Episode e of the env with seed s is of the (s + e)-th of these, counted round.
    Empty: all."""

    cameras: tuple[str, ...] = ("agentview", "robot0_eye_in_hand")
    """Cameras to send."""

    image_size: int = 256
    """Height and width of each image, in pixels."""

    rotate_images: bool = True
    """Turn images by 180 degrees, as in the data that OpenVLA and openpi were trained with. False: as LIBERO renders
    and stores them."""

    settle_steps: int = 10
    """Steps without motion at the start of an episode, in which objects drop to the table."""

    horizon: int | None = None
    """Steps of an episode. None: 220, 280, 300, 520 and 400 for the suites spatial, object, goal, 10 and 90."""


@register_env(UID)
def make_libero(config: LiberoConfig, num_envs: int) -> BaseEnv:
    """Build the environments: seven actions (position, rotation, gripper), each -1 to 1; reward 1 for the success.

    Raises:
        EnvError: there is no such task or camera, LIBERO is not set up, or a number is out of range.
    """
    from plugrl_env_client.envs.gym_adapter.making import make_gym_env, require_at_least
    from plugrl_env_client.envs.simulators.libero_task import ENV_ID, load_suite
    from plugrl_env_client.envs.simulators.scenes import require_cameras

    require_cameras(config.cameras, CAMERAS)
    require_at_least("--env.image-size", config.image_size, 1)
    require_at_least("--env.settle-steps", config.settle_steps, 0)
    horizon = HORIZONS[config.suite] if config.horizon is None else config.horizon
    require_at_least("--env.horizon", horizon, 1)
    count = load_suite(config.suite).get_num_tasks()
    for task in config.task_ids:
        if not 0 <= task < count:
            raise EnvError(f"--env.task-ids {task}: {config.suite} has the tasks 0 to {count - 1}")
    defaults = {
        "suite": config.suite,
        "task_ids": config.task_ids or tuple(range(count)),
        "cameras": config.cameras,
        "image_size": config.image_size,
        "rotate_images": config.rotate_images,
        "settle_steps": config.settle_steps,
        "max_episode_steps": horizon,
    }
    env = make_gym_env(ENV_ID, num_envs, flags=config, defaults=defaults)
    env.env_id = f"libero/{config.suite}"
    return env
