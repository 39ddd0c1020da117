"""`gym-v1`: any environment that is registered with Gymnasium."""

import dataclasses

from plugrl_env_client.envs.base_env import BaseEnv
from plugrl_env_client.envs.gym_flags import GymFlags
from plugrl_env_client.registration import register_env, register_env_config

UID = "gym-v1"


@register_env_config(UID)
@dataclasses.dataclass
class GymConfig(GymFlags):
    """Which environment, with which arguments, and how n of them are run."""

    id: str = dataclasses.field(kw_only=True)
    """A registered id. `module:Id` imports `module` first, where the env's own package registers it."""


@register_env(UID)
def make_gym(config: GymConfig, num_envs: int) -> BaseEnv:
    """Build the environments.

    Raises:
        EnvError: no such id, or arguments that it does not take.
    """
    from plugrl_env_client.envs.gym_adapter.making import make_gym_env

    return make_gym_env(config.id, num_envs, flags=config)
