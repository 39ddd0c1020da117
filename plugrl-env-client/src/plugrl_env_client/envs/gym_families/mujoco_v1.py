"""`mujoco-v1`: Gymnasium's MuJoCo environments (extra `mujoco`)."""

import dataclasses

from plugrl_env_client.envs.base_env import BaseEnv
from plugrl_env_client.envs.gym_flags import GymFlags
from plugrl_env_client.registration import register_env, register_env_config

UID = "mujoco-v1"
OLDEST = 4  # v2 and v3 need the bindings of before 2021


@register_env_config(UID)
@dataclasses.dataclass
class MujocoConfig(GymFlags):
    """Which environment, and how n of them are run."""

    name: str = "HalfCheetah-v5"
    """A MuJoCo id: HalfCheetah-v5, Hopper-v5, Walker2d-v5, Ant-v5, Humanoid-v5, Swimmer-v5, Reacher-v5, ..."""


@register_env(UID)
def make_mujoco(config: MujocoConfig, num_envs: int) -> BaseEnv:
    """Build the environments.

    Raises:
        EnvError: `config.name` is not a MuJoCo id that still runs.
    """
    from plugrl_env_client.envs.gym_adapter.making import known_ids, make_gym_env, require_known

    ids = [name for name in known_ids(within=("gymnasium.envs.mujoco",)) if _version(name) >= OLDEST]
    require_known(config.name, ids, UID)
    return make_gym_env(config.name, num_envs, flags=config)


def _version(name: str) -> int:
    return int(name.rpartition("-v")[2])
