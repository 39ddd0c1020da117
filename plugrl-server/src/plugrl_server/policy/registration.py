"""Registering, listing and making policies."""

from collections.abc import Callable
from typing import Any, TypeVar

from plugrl_server.common.registry import Registry
from plugrl_server.policy.base_policy import BasePolicy
from plugrl_server.policy.builtins import BUILTIN_POLICIES

C = TypeVar("C", bound=type)

POLICIES = Registry("Policy", BUILTIN_POLICIES, "plugrl.policies")


def register_policy(uid: str, *, override: bool = False) -> Callable[[C], C]:
    """Return the class decorator that registers a policy; it is constructed as `cls(config)`.

    Raises:
        KeyError: From the decorator, when user code registered another class under `uid` and `override` is false.
    """
    return POLICIES.register_class(uid, override=override)  # type: ignore[return-value]


def register_policy_config(uid: str, variant: str = "default", *, override: bool = False) -> Callable[[C], C]:
    """Return the decorator that registers a configuration dataclass as a variant of the policy `uid`.

    Raises:
        KeyError: From the decorator, when user code registered this variant already and `override` is false.
        TypeError: From the decorator, when the class is not a dataclass.
    """
    return POLICIES.register_config(uid, variant, override=override)  # type: ignore[return-value]


def make_policy(uid: str, config: Any) -> BasePolicy:
    """Build the policy `uid` from its configuration.

    Raises:
        KeyError: `'Policy <uid> is not registered.'`; the notes of the error say what is missing.
        ImportError: The policy needs what is not installed; the text ends with the install command.
    """
    policy: BasePolicy = POLICIES.get_class(uid)(config)
    return policy


def list_policies() -> dict[str, dict[str, type]]:
    """Return uid -> variant -> configuration class, without importing torch."""
    return POLICIES.variants()
