"""Flags that every family of Gymnasium environments has (`--env.*`). Imports no Gymnasium: `--help` is quick."""

import ast
import dataclasses
from typing import Any, Literal

from plugrl_env_client.envs.base_env import BaseEnvConfig, EnvError

Vectorization = Literal["auto", "loop", "sync", "async", "own"]
SUCCESS_KEYS = ("success", "is_success")


@dataclasses.dataclass
class GymFlags(BaseEnvConfig):
    """How n Gymnasium environments of one id are made, run and read."""

    vectorization: Vectorization = "auto"
    """loop: a lean loop over single environments. sync, async: Gymnasium's SyncVectorEnv, or AsyncVectorEnv with one
    process an env. own: the env's own vector entry point, which seeds its envs itself. auto: loop, or own where the env
    has no other form."""

    kwargs: tuple[str, ...] = ()
    """Arguments of `gymnasium.make` as KEY=VALUE; values are Python literals (3, 0.5, True, None, [1, 2]) or text."""

    wrappers: tuple[str, ...] = ()
    """Wrappers of single environments, innermost first: names in gymnasium.wrappers or module:Class, with arguments if
    any, such as "FrameStackObservation(stack_size=4)"."""

    state_keys: tuple[str, ...] | None = None
    """Which states to send, in this order; an image that is named here is flattened. None: all."""

    image_keys: tuple[str, ...] | None = None
    """Which images to send, in this order. None: all."""

    success_keys: tuple[str, ...] = SUCCESS_KEYS
    """Entries of the env's info that say whether an episode that ended was a success; the first that is there counts.
    Where there is none, a return that reaches the env's reward threshold is one."""


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
