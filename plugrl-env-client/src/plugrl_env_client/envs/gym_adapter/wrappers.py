"""`--env.wrappers`: Gymnasium wrappers named in text, with literal arguments; nothing of the text is executed."""

import ast
import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any

import gymnasium
import gymnasium.wrappers

from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.registration import import_user_module

_HOME = "gymnasium.wrappers"


@dataclasses.dataclass(frozen=True)
class Wrapping:
    """One wrapper and its arguments, to be put around an env.

    Attributes:
        text: as the user wrote it.
        module: where the class is.
        name: of the class (or of a function that takes an env and returns one).
        args: after the env.
        kwargs: by name.
    """

    text: str
    module: str
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def wrap(self, env: "gymnasium.Env[Any, Any]") -> "gymnasium.Env[Any, Any]":
        """Put the wrapper around `env`.

        Raises:
            EnvError: there is no such wrapper, it does not take the arguments, or it does not fit the env.
        """
        wrapper = self._find()
        try:
            wrapped = wrapper(env, *self.args, **self.kwargs)
        except Exception as err:  # it is somebody else's code, given arguments from the command line
            raise EnvError(f"--env.wrappers {self.text}: {err or type(err).__name__}") from err
        if not isinstance(wrapped, gymnasium.Env):
            raise EnvError(f"--env.wrappers {self.text}: returned a {type(wrapped).__name__}, expected an env")
        return wrapped

    def _find(self) -> Any:
        try:
            module = gymnasium.wrappers if self.module == _HOME else import_user_module(self.module)
            found = getattr(module, self.name)
        except AttributeError:
            raise EnvError(f"--env.wrappers {self.text}: {self.module} has no {self.name}{self._advice()}") from None
        except Exception as err:
            raise EnvError(f"--env.wrappers {self.text}: {err}") from err
        if not callable(found):
            raise EnvError(f"--env.wrappers {self.text}: {self.module}:{self.name} is no wrapper")
        return found

    def _advice(self) -> str:
        if self.module != _HOME:
            return ""
        near = difflib.get_close_matches(self.name, gymnasium.wrappers.__all__, n=1, cutoff=0.5)
        return (f"; did you mean {near[0]}?" if near else "") + " (wrappers from elsewhere are named module:Class)"


def parse_wrappers(texts: Sequence[str]) -> list[Wrapping]:
    """Wrappers as they are written on the command line.

    Args:
        texts: `Name`, `Name(4, key="value")` or `module:Name(...)`.

    Raises:
        EnvError: a text that is neither.
    """
    return [_parse(text.strip()) for text in texts]


def _parse(text: str) -> Wrapping:
    head, bracket, rest = text.partition("(")
    module, _, name = head.strip().rpartition(":")
    if not name.isidentifier():
        raise EnvError(f"--env.wrappers {text}: expected Name(arguments) or module:Name(arguments)")
    try:
        args, kwargs = _arguments(bracket + rest) if bracket else ((), {})
    except (SyntaxError, ValueError, TypeError):
        raise EnvError(
            f"--env.wrappers {text}: arguments must be Python literals, as in FrameStackObservation(stack_size=4)"
        ) from None
    return Wrapping(text, module or _HOME, name, args, kwargs)


def _arguments(bracketed: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    call = ast.parse(f"wrapper{bracketed}", mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(bracketed)
    kwargs: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None:  # **mapping
            raise ValueError(bracketed)
        kwargs[keyword.arg] = ast.literal_eval(keyword.value)
    return tuple(ast.literal_eval(arg) for arg in call.args), kwargs
