"""`metaworld-v1`: the 50 manipulation tasks of Meta-World (arXiv:1910.10897, v3; package `metaworld`)."""

import dataclasses

from plugrl_env_client.envs.base_env import BaseEnv, EnvError
from plugrl_env_client.envs.gym_flags import GymFlags
from plugrl_env_client.registration import register_env, register_env_config

UID = "metaworld-v1"
LONGEST = 500  # Meta-World truncates there itself
CAMERAS = ("topview", "corner", "corner2", "corner3", "corner4", "behindGripper", "gripperPOV")


@register_env_config(UID)
@dataclasses.dataclass
class MetaworldConfig(GymFlags):
    """Which task, what is observed of it, and how n of them are run.

    Observed: state `obs` (39 numbers: gripper and objects, now and one step ago, and the goal), an image for each
    camera, the task's name as text. Cameras need a way to render without a screen: `MUJOCO_GL=egl` or `osmesa`.
    """

    name: str = "reach-v3"
    """A task: reach-v3, push-v3, pick-place-v3, door-open-v3, drawer-close-v3, button-press-topdown-v3, ..."""

    goal_hidden: bool = False
    """Send zeros for the goal, as in Meta-World's meta-learning benchmarks."""

    cameras: tuple[str, ...] = ()
    """Cameras to send: topview, corner, corner2, corner3, corner4, behindGripper, gripperPOV."""

    image_size: int = 224
    """Height and width of each image, in pixels."""

    horizon: int = 500
    """Steps of an episode, at most Meta-World's own 500."""

    terminate_on_success: bool = False
    """End an episode with its first success. Without it an episode that was a success once counts as one."""


@register_env(UID)
def make_metaworld(config: MetaworldConfig, num_envs: int) -> BaseEnv:
    """Build the environments: four actions (three of the hand, one of the gripper), each -1 to 1.

    Raises:
        EnvError: there is no such task or camera, or a number is out of range.
    """
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    from plugrl_env_client.envs.gym_adapter.making import make_gym_env, require_at_least, require_known
    from plugrl_env_client.envs.simulators.metaworld_task import ENV_ID
    from plugrl_env_client.envs.simulators.scenes import require_cameras

    name = config.name if config.name.endswith("-v3") else f"{config.name}-v3"
    require_known(name, sorted(ALL_V3_ENVIRONMENTS), UID)
    require_cameras(config.cameras, CAMERAS)
    require_at_least("--env.image-size", config.image_size, 1)
    if not 1 <= config.horizon <= LONGEST:
        raise EnvError(f"--env.horizon {config.horizon}: expected 1 to {LONGEST}")
    defaults = {
        "task": name,
        "goal_hidden": config.goal_hidden,
        "cameras": config.cameras,
        "image_size": config.image_size,
        "terminate_on_success": config.terminate_on_success,
        "max_episode_steps": config.horizon,
    }
    env = make_gym_env(ENV_ID, num_envs, flags=config, defaults=defaults)
    env.env_id = f"metaworld/{name}"
    return env
