"""Compiled and narrower forward passes for learning."""

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

import torch

from plugrl_server.common.config_error import require

F = TypeVar("F", bound=Callable[..., Any])

BACKEND = "inductor"
"""Of torch.compile."""


def compiled(function: F, device: torch.device) -> F:
    """Return a function compiled by torch at its first call; it may not be a method, so that owners can be copied.

    Raises:
        ConfigError: There is no compiler that torch could use.
    """
    if BACKEND == "inductor":
        names = (os.environ.get("CXX"), "g++", "clang++", "c++", "gcc", "cc")
        require(
            any(name is not None and shutil.which(name) is not None for name in names),
            f"--policy.compile on {device.type}: torch needs a C++ compiler such as g++, and there is none; install "
            "one, or leave the flag out.",
        )
    return cast("F", torch.compile(function, backend=BACKEND))


def autocast(device: torch.device, kind: str) -> AbstractContextManager[Any]:
    """Return the context in which matrix products and convolutions run in bfloat16, or none for `kind` "off"."""
    return torch.autocast(device.type, torch.bfloat16) if kind == "bf16" else nullcontext()
