"""Builds n Gymnasium environments of one id, vectorised in one of four ways."""

import dataclasses
import difflib
import functools
import logging
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from plugrl_env_client.envs.base_env import BaseEnv, EnvError
from plugrl_env_client.envs.gym_adapter.loop_env import LoopEnv
from plugrl_env_client.envs.gym_adapter.vector_env import GymVectorEnv
from plugrl_env_client.envs.gym_adapter.wrappers import Wrapping, parse_wrappers
from plugrl_env_client.envs.gym_flags import GymFlags, Vectorization, parse_kwargs
from plugrl_env_client.registration import import_user_module

_logger = logging.getLogger(__name__)
_Env = gymnasium.Env[Any, Any]
# What a constructor may raise about its arguments. Anything else is a fault of the env's and keeps its traceback.
_REFUSALS = (
    gymnasium.error.Error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,  # what C++ throws
    TypeError,
    ValueError,
)


def make_gym_env(
    env_id: str,
    num_envs: int,
    *,
    flags: GymFlags | None = None,
    defaults: Mapping[str, Any] | None = None,
    wrap: Callable[[_Env], _Env] | None = None,
) -> BaseEnv:
    """Build n environments.

    Args:
        env_id: a registered id, or `module:Id` to import `module` first.
        num_envs: n.
        flags: how they are made, run and read. `--env.kwargs max_episode_steps=N` replaces the registered limit.
        defaults: arguments of `gymnasium.make` that `--env.kwargs` may replace.
        wrap: put around every single env, inside the wrappers of the flags.

    Raises:
        EnvError: no such env, wrong arguments, or spaces that cannot be sent.
    """
    flags = flags or GymFlags()
    kwargs = {**(defaults or {}), **parse_kwargs(flags.kwargs)}
    wrappers = tuple(parse_wrappers(flags.wrappers))
    try:
        spec = _spec(env_id)
        how = _choose(flags, spec)
        if how == "own":
            return GymVectorEnv(_own(env_id, num_envs, kwargs), env_id=env_id, flags=flags)
        make = _Maker(spec, kwargs, wrap, wrappers)
        if how == "loop":
            return LoopEnv([make() for _ in range(num_envs)], env_id=env_id, flags=flags)
        build = _synchronous if how == "sync" else _asynchronous
        return GymVectorEnv(build(make, num_envs), env_id=env_id, flags=flags)
    except EnvError:
        raise
    except _REFUSALS as err:
        reason = str(err) if len(str(err).split()) > 1 else f"{type(err).__name__} {err}".strip()  # or it says little
        raise EnvError(f"cannot make {env_id}: {reason}") from err


@dataclasses.dataclass(frozen=True)
class _Maker:
    """Makes one single environment; can be sent to another process, which need not know the id."""

    spec: EnvSpec
    kwargs: dict[str, Any]
    wrap: Callable[[_Env], _Env] | None
    wrappers: tuple[Wrapping, ...]

    def __call__(self) -> _Env:
        id_or_spec = self.spec.id if self.spec.id in gymnasium.registry else self.spec  # an old id is warned of
        env: _Env = gymnasium.make(id_or_spec, disable_env_checker=True, **self.kwargs)
        if self.wrap is not None:
            env = self.wrap(env)
        for wrapper in self.wrappers:
            env = wrapper.wrap(env)
        return env


def _spec(env_id: str) -> EnvSpec:
    module, _, registered = env_id.rpartition(":")
    if module:
        import_user_module(module)
    return gymnasium.spec(registered)


def _choose(flags: GymFlags, spec: EnvSpec) -> Vectorization:
    """What `auto` stands for, and whether the env has that form.

    A loop, because there every env has a seed of its own and resets without losing a step; an env's own vector form may
    do neither. Where there is no single env to loop over, the own form.
    """
    how = flags.vectorization
    if how == "auto":
        how = "own" if spec.entry_point is None and not flags.wrappers else "loop"
        if how == "loop" and spec.vector_entry_point is not None:
            _say_once(f"{spec.id}: a loop over single envs; --env.vectorization own would use the env's vector form")
    if how != "own" and spec.entry_point is None:
        raise EnvError(f"{spec.id} is a vector env only; use --env.vectorization own, without --env.wrappers")
    if how == "own" and spec.vector_entry_point is None:
        raise EnvError(f"{spec.id} has no vector entry point of its own; use --env.vectorization loop, sync or async")
    if how == "own" and flags.wrappers:
        raise EnvError("--env.wrappers are for single envs; use --env.vectorization loop, sync or async")
    return how


@functools.cache
def _say_once(text: str) -> None:
    _logger.info(text)


def _own(env_id: str, num_envs: int, kwargs: Mapping[str, Any]) -> "gymnasium.vector.VectorEnv[Any, Any, Any]":
    vector = gymnasium.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point", **kwargs)
    if vector.num_envs != num_envs:
        vector.close()
        raise EnvError(f"{env_id} was asked for {num_envs} envs and made {vector.num_envs}")
    return vector


def _synchronous(make: _Maker, num_envs: int) -> "gymnasium.vector.VectorEnv[Any, Any, Any]":
    vector = SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
    vector.spec = vector.envs[0].spec  # built from functions, it does not know what it holds
    return vector


def _asynchronous(make: _Maker, num_envs: int) -> "gymnasium.vector.VectorEnv[Any, Any, Any]":
    """One process an env, none of them a fork of this one: where it has rendered, rendering hangs in a fork."""
    env = make()
    spec, space = env.spec, env.observation_space
    env.close()
    vector = AsyncVectorEnv(
        [make] * num_envs,
        autoreset_mode=AutoresetMode.DISABLED,
        context=_clean_start(),
        shared_memory=not _holds_text(space),  # Gymnasium reads a text there once, before there is one
    )
    vector.spec = spec
    return vector


def _clean_start() -> str:
    """How to start a process that takes nothing over from this one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return "spawn"
    multiprocessing.set_forkserver_preload([__name__])  # 16 CartPoles in 0.5 s; 3 s where each imports all of it
    return "forkserver"


def _holds_text(space: "spaces.Space[Any]") -> bool:
    if isinstance(space, spaces.Dict):
        return any(_holds_text(inner) for inner in space.values())
    if isinstance(space, spaces.Tuple):
        return any(_holds_text(inner) for inner in space)
    return isinstance(space, spaces.Text)


def known_ids(*, within: Sequence[str], without: str | None = None) -> list[str]:
    """Registered ids, current and older versions, whose code lives in one of the given modules.

    Args:
        within: module prefixes such as `gymnasium.envs.classic_control`.
        without: entry points that contain this are left out.
    """
    return sorted(
        spec.id
        for spec in gymnasium.registry.values()
        if isinstance(spec.entry_point, str)
        and spec.entry_point.startswith(tuple(within))
        and not (without and without in spec.entry_point)
    )


def require_known(name: str, ids: Sequence[str], uid: str) -> None:
    """Refuse a name that a family does not have, with advice.

    Raises:
        EnvError: it names the nearest id and all others.
    """
    if name not in ids:
        near = difflib.get_close_matches(name, ids, n=1, cutoff=0.5)
        advice = f"did you mean {near[0]}? " if near else ""
        raise EnvError(f"--env.name {name}: {advice}{uid} has {', '.join(ids)}")


def require_at_least(flag: str, value: float, least: float) -> None:
    """Refuse a number that is too small.

    Raises:
        EnvError: names the flag.
    """
    if not value >= least:
        raise EnvError(f"{flag} {value}: expected at least {least}")
