"""`robotics-v1`: the Farama Foundation's robotics environments (extra `robotics`): Fetch, hands, mazes, kitchen."""

import dataclasses
from importlib.metadata import version

from plugrl_env_client.envs.base_env import BaseEnv, EnvError
from plugrl_env_client.envs.gym_flags import GymFlags
from plugrl_env_client.registration import BUILT_IN, register_env, register_env_config

UID = "robotics-v1"
TOO_NEW = (3, 12)  # of mujoco: gymnasium-robotics 1.4 compares its enumerations as they were before


@register_env_config(UID)
@dataclasses.dataclass
class RoboticsConfig(GymFlags):
    """Which environment, and how n of them are run.

    Where an env has goals, the states are `observation`, `achieved_goal` and `desired_goal`.
    """

    name: str = "PointMaze_UMaze-v3"
    """An id: PointMaze_UMaze-v3, AntMaze_UMaze-v5, AdroitHandDoor-v1, FetchReach-v4, FetchPush-v4, HandReach-v3, ...
    Those with Dense in their name reward every step, the others the goal only. Fetch, the Shadow hand and the kitchen
    need mujoco below 3.12."""


@register_env(UID)
def make_robotics(config: RoboticsConfig, num_envs: int) -> BaseEnv:
    """Build the environments.

    Raises:
        EnvError: `config.name` is not an id of gymnasium-robotics that still runs.
    """
    import gymnasium_robotics
    from gymnasium import register_envs

    from plugrl_env_client.envs.gym_adapter.making import known_ids, make_gym_env, require_known

    register_envs(gymnasium_robotics)
    # The ones that need the bindings of before 2021 say so in the name of their class.
    ids = known_ids(within=("gymnasium_robotics.",), without="MujocoPy")
    require_known(config.name, ids, UID)
    try:
        return make_gym_env(config.name, num_envs, flags=config)
    except EnvError as err:
        found = version("mujoco")
        if tuple(int(part) for part in found.split(".")[:2]) < TOO_NEW:
            raise
        too_new = ".".join(str(part) for part in TOO_NEW)
        advice = f"gymnasium-robotics needs mujoco below {too_new}, this is {found}: {BUILT_IN[UID].install_command}"
        raise EnvError(f"{err}; {advice}") from err
