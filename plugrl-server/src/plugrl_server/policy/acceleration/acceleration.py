"""Compiled and narrower forward passes for learning."""

import functools
import os
import shutil
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import nn

from plugrl_server.common.config_error import require
from plugrl_server.policy.acceleration.acceleration_config import AccelerationConfig

F = TypeVar("F", bound=Callable[..., Any])

BACKEND = "inductor"
"""Of torch.compile."""


def accelerated(function: F, config: AccelerationConfig, device: torch.device) -> F:
    """Return a forward pass as learning runs it: compiled, in bfloat16, or, with neither flag, the function itself.

    In inference mode, which is acting, it stays as it is: a few rows gain nothing, and every new number of them would
    be compiled anew. What learning compares with (old values, old log-probabilities) is to be computed under `no_grad`
    instead, and so comes out of the same networks as what it is compared with.

    Args:
        function: Of networks and tensors; no method, so that a policy can be copied. Torch keeps its compiled forms by
            its code, so each kind of network wants a function of its own. With `autocast` its outputs may be bfloat16.
        config: The flags.
        device: Where the networks are.

    Raises:
        ConfigError: It is to be compiled, and there is no compiler that torch could use.
    """
    if not config.compile and config.autocast == "off":
        return function
    while_learning = compiled(function, device) if config.compile else function

    @functools.wraps(function)
    def run(*inputs: Any) -> Any:
        if torch.is_inference_mode_enabled():
            return function(*inputs)
        with torch.autocast(device.type, torch.bfloat16, enabled=config.autocast == "bf16"):
            return while_learning(*inputs)

    return cast("F", run)


def compiled(function: F, device: torch.device) -> F:
    """Return a function compiled by torch at its first call.

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


def encoded(encoder: nn.Module, features: Any) -> torch.Tensor:
    """Return the vectors f[N, width] that an encoder makes of features: the pass that policies accelerate for it."""
    vectors: torch.Tensor = encoder(features)
    return vectors
