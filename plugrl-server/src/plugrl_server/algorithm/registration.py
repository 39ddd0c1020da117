"""Registering, listing and making algorithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from plugrl_server.algorithm.builtins import BUILTIN_ALGORITHMS
from plugrl_server.common.registry import Registry

if TYPE_CHECKING:
    from plugrl_server.algorithm.base_algorithm import BaseAlgorithm

C = TypeVar("C", bound=type)

ALGORITHMS = Registry("Algorithm", BUILTIN_ALGORITHMS, "plugrl.algorithms")


def register_algo(uid: str, *, override: bool = False) -> Callable[[C], C]:
    """Return the class decorator that registers an algorithm; it is constructed as `cls(config=..., policy=...)`.

    Raises:
        KeyError: From the decorator, when user code registered another class under `uid` and `override` is false.
    """
    return ALGORITHMS.register_class(uid, override=override)  # type: ignore[return-value]


def register_algo_config(uid: str, variant: str = "default", *, override: bool = False) -> Callable[[C], C]:
    """Return the decorator that registers a configuration dataclass as a variant of the algorithm `uid`.

    Raises:
        KeyError: From the decorator, when user code registered this variant already and `override` is false.
        TypeError: From the decorator, when the class is not a dataclass.
    """
    return ALGORITHMS.register_config(uid, variant, override=override)  # type: ignore[return-value]


def make_algo(uid: str, config: Any, policy: Any) -> BaseAlgorithm:
    """Build the algorithm `uid` on a policy.

    Raises:
        KeyError: `'Algorithm <uid> is not registered.'`; the notes of the error say what is missing.
        ImportError: The algorithm needs what is not installed; the text ends with the install command.
        TypeError: The class is still abstract (`learn_impl` is the method to write, not `learn`).
    """
    algorithm: BaseAlgorithm = ALGORITHMS.get_class(uid)(config=config, policy=policy)
    return algorithm


def list_algos() -> dict[str, dict[str, type]]:
    """Return uid -> variant -> configuration class, without importing torch."""
    return ALGORITHMS.variants()
