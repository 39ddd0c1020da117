"""`gym-v1`: any environment that is registered with Gymnasium."""

import ast
import dataclasses
from typing import Any, Literal

from plugrl_env_client.envs.base_env import BaseEnv, BaseEnvConfig, EnvError
from plugrl_env_client.registration import register_env, register_env_config

UID = "gym-v1"


@register_env_config(UID)
@dataclasses.dataclass
class GymConfig(BaseEnvConfig):
    """Which environment, with which arguments, and how n of them are run."""

    id: str = dataclasses.field(kw_only=True)
    """A registered id. `module:Id` imports `module` first, where the env's own package registers it."""

    kwargs: tuple[str, ...] = ()
    """Arguments of `gymnasium.make` as KEY=VALUE; values are Python literals (3, 0.5, True, None, [1, 2]) or text."""

    vectorization: Literal["loop", "sync", "async", "native"] = "loop"
    """A lean loop, Gymnasium's SyncVectorEnv or AsyncVectorEnv, or the env's own vector entry point."""


@register_env(UID)
def make_gym(config: GymConfig, num_envs: int) -> BaseEnv:
    """Build the environments.

    Raises:
        EnvError: no such id, or arguments that it does not take.
    """
    from plugrl_env_client.envs.gym_adapter.making import make_gym_env

    return make_gym_env(
        config.id,
        num_envs,
        kwargs=parse_kwargs(config.kwargs),
        vectorization=config.vectorization,
        info_keys=config.info_keys,
    )


def parse_kwargs(pairs: tuple[str, ...]) -> dict[str, Any]:
    """`KEY=VALUE` texts as keyword arguments.

    Raises:
        EnvError: a text without `=`, without a key, or a key given twice.
    """
    kwargs: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise EnvError(f"--env.kwargs {pair}: expected KEY=VALUE, such as gravity=3.7")
        if key in kwargs:
            raise EnvError(f"--env.kwargs {pair}: {key} is given twice")
        kwargs[key] = _literal(text)
    return kwargs


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
