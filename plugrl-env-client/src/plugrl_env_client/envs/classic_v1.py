"""`classic-v1`: Gymnasium's classic-control and toy-text environments."""

import dataclasses
import difflib
from typing import Literal

from plugrl_env_client.envs.base_env import BaseEnv, BaseEnvConfig, EnvError
from plugrl_env_client.registration import register_env, register_env_config

UID = "classic-v1"
FAMILIES = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")


@register_env_config(UID)
@dataclasses.dataclass
class ClassicConfig(BaseEnvConfig):
    """Which environment, and how n of them are run."""

    name: str = "CartPole-v1"
    """A classic-control or toy-text id: CartPole-v1, Pendulum-v1, Acrobot-v1, MountainCar-v0, FrozenLake-v1, ..."""

    vectorization: Literal["loop", "sync", "async", "native"] = "loop"
    """A lean loop, Gymnasium's SyncVectorEnv or AsyncVectorEnv, or the env's own vector form (CartPole has one)."""


@register_env(UID)
def make_classic(config: ClassicConfig, num_envs: int) -> BaseEnv:
    """Build the environments.

    Raises:
        EnvError: `config.name` is not an id of these two families.
    """
    from plugrl_env_client.envs.gym_adapter.making import known_ids, make_gym_env

    ids = known_ids(within=FAMILIES)
    if config.name not in ids:
        near = difflib.get_close_matches(config.name, ids, n=1, cutoff=0.5)
        advice = f"did you mean {near[0]}? " if near else ""
        raise EnvError(f"--env.name {config.name}: {advice}classic-v1 has {', '.join(ids)}")
    return make_gym_env(config.name, num_envs, vectorization=config.vectorization, info_keys=config.info_keys)
