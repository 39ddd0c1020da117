"""Builds n Gymnasium environments of one id, vectorised in one of four ways."""

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from plugrl_env_client.envs.base_env import BaseEnv, EnvError
from plugrl_env_client.envs.gym_adapter.loop_env import LoopEnv
from plugrl_env_client.envs.gym_adapter.vector_env import GymVectorEnv

Vectorization = Literal["loop", "sync", "async", "native"]


def make_gym_env(
    env_id: str,
    num_envs: int,
    *,
    kwargs: Mapping[str, Any] | None = None,
    vectorization: Vectorization = "loop",
    info_keys: Sequence[str] = (),
) -> BaseEnv:
    """Build n environments.

    Args:
        env_id: a registered id, or `module:Id` to import `module` first.
        num_envs: n.
        kwargs: passed to `gymnasium.make` (`max_episode_steps` replaces the registered limit).
        vectorization: "loop" (a lean loop, the default), "sync" (`SyncVectorEnv`), "async" (`AsyncVectorEnv`, one
            process an env: for envs that take milliseconds a step) or "native" (the env's own vector entry point).
        info_keys: entries of the infos to send.

    Raises:
        EnvError: no such env, wrong arguments, or spaces that cannot be sent.
    """
    arguments = dict(kwargs or {})
    try:
        if vectorization == "native":
            return GymVectorEnv(_native(env_id, num_envs, arguments), env_id=env_id, info_keys=info_keys)
        make = functools.partial(gymnasium.make, env_id, disable_env_checker=True, **arguments)
        if vectorization == "loop":
            return LoopEnv([make() for _ in range(num_envs)], env_id=env_id, info_keys=info_keys)
        build = SyncVectorEnv if vectorization == "sync" else AsyncVectorEnv
        vector = build([make] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
        vector.spec = _spec_of_one(make)  # built from functions, it does not know what it holds
        return GymVectorEnv(vector, env_id=env_id, info_keys=info_keys)
    except EnvError:
        raise
    except (gymnasium.error.Error, ImportError, TypeError, AttributeError) as err:
        raise EnvError(f"cannot make {env_id}: {err}") from err


def _native(env_id: str, num_envs: int, kwargs: Mapping[str, Any]) -> "gymnasium.vector.VectorEnv[Any, Any, Any]":
    module, _, registered = env_id.rpartition(":")
    if module:
        importlib.import_module(module)
    if gymnasium.spec(registered).vector_entry_point is None:
        raise EnvError(f"{env_id} has no vector entry point of its own; use --env.vectorization loop, sync or async")
    return gymnasium.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point", **kwargs)


def _spec_of_one(make: "Callable[[], gymnasium.Env[Any, Any]]") -> "gymnasium.envs.registration.EnvSpec | None":
    env = make()
    try:
        return env.spec
    finally:
        env.close()


def known_ids(*, within: Sequence[str]) -> list[str]:
    """Registered ids, current and older versions, whose code lives in one of the given modules.

    Args:
        within: module prefixes such as `gymnasium.envs.classic_control`.
    """
    return sorted(
        spec.id
        for spec in gymnasium.registry.values()
        if isinstance(spec.entry_point, str) and spec.entry_point.startswith(tuple(within))
    )
