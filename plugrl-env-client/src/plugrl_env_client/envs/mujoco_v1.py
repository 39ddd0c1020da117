"""`mujoco-v1`: Gymnasium's MuJoCo environments (extra `mujoco`)."""

import dataclasses
import difflib
from typing import Literal

from plugrl_env_client.envs.base_env import BaseEnv, BaseEnvConfig, EnvError
from plugrl_env_client.registration import register_env, register_env_config

UID = "mujoco-v1"
OLDEST = 4  # v2 and v3 need the bindings of before 2021


@register_env_config(UID)
@dataclasses.dataclass
class MujocoConfig(BaseEnvConfig):
    """Which environment, and how n of them are run."""

    name: str = "HalfCheetah-v5"
    """A MuJoCo id: HalfCheetah-v5, Hopper-v5, Walker2d-v5, Ant-v5, Humanoid-v5, Swimmer-v5, Reacher-v5, ..."""

    vectorization: Literal["loop", "sync", "async"] = "loop"
    """A lean loop, or Gymnasium's SyncVectorEnv or AsyncVectorEnv (one process an env)."""


@register_env(UID)
def make_mujoco(config: MujocoConfig, num_envs: int) -> BaseEnv:
    """Build the environments.

    Raises:
        EnvError: `config.name` is not a MuJoCo id that still runs.
    """
    from plugrl_env_client.envs.gym_adapter.making import known_ids, make_gym_env

    ids = [name for name in known_ids(within=("gymnasium.envs.mujoco",)) if _version(name) >= OLDEST]
    if config.name not in ids:
        near = difflib.get_close_matches(config.name, ids, n=1, cutoff=0.5)
        advice = f"did you mean {near[0]}? " if near else ""
        raise EnvError(f"--env.name {config.name}: {advice}mujoco-v1 has {', '.join(ids)}")
    return make_gym_env(config.name, num_envs, vectorization=config.vectorization, info_keys=config.info_keys)


def _version(name: str) -> int:
    return int(name.rpartition("-v")[2])
