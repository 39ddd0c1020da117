"""`classic-v1`: Gymnasium's classic-control and toy-text environments."""

import dataclasses

from plugrl_env_client.envs.base_env import BaseEnv
from plugrl_env_client.envs.gym_flags import GymFlags
from plugrl_env_client.registration import register_env, register_env_config

UID = "classic-v1"
FAMILIES = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")


@register_env_config(UID)
@dataclasses.dataclass
class ClassicConfig(GymFlags):
    """Which environment, and how n of them are run."""

    name: str = "CartPole-v1"
    """A classic-control or toy-text id: CartPole-v1, Pendulum-v1, Acrobot-v1, MountainCar-v0, FrozenLake-v1, ..."""


@register_env(UID)
def make_classic(config: ClassicConfig, num_envs: int) -> BaseEnv:
    """Build the environments.

    Raises:
        EnvError: `config.name` is not an id of these two families.
    """
    from plugrl_env_client.envs.gym_adapter.making import known_ids, make_gym_env, require_known

    require_known(config.name, known_ids(within=FAMILIES), UID)
    return make_gym_env(config.name, num_envs, flags=config)
