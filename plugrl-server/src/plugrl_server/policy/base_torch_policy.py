"""The base of policies made of torch modules."""

import numpy as np
import torch
from torch import nn

from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.base_policy import BasePolicy, BaseTorchPolicyConfig
from plugrl_server.policy.state import Tree

__all__ = ["BaseTorchPolicy", "BaseTorchPolicyConfig", "resolve_device"]


class BaseTorchPolicy(nn.Module, BasePolicy):
    """A policy that is a `torch.nn.Module`: its `state_dict()` is what a checkpoint holds.

    Attributes:
        device: Where its tensors live; a subclass calls `self.to(self.device)` at the end of its `__init__`.
        rng: Its own random generator, seeded from torch's global one, for sampling actions.
    """

    def __init__(self, config: BaseTorchPolicyConfig) -> None:
        nn.Module.__init__(self)
        BasePolicy.__init__(self, config)
        self.device = resolve_device(getattr(config, "device", "auto"))
        self.rng = np.random.default_rng(int(torch.randint(2**62, ())))

    @torch.no_grad()
    def weights_are_finite(self) -> bool:
        """Return whether no parameter that learns is NaN or infinite."""
        finite = [parameter.isfinite().all() for parameter in self.parameters() if parameter.requires_grad]
        return not finite or bool(torch.stack([each.to(finite[0].device) for each in finite]).all())

    def rng_state(self) -> Tree:
        """Return the state of `rng`."""
        return dict(self.rng.bit_generator.state)

    def load_rng_state(self, state: Tree) -> None:
        """Restore what `rng_state` returned."""
        self.rng.bit_generator.state = state


def resolve_device(name: str) -> torch.device:
    """Return the torch device of a flag; "auto" is CUDA where there is one, else the CPU.

    Raises:
        ConfigError: Torch knows no such device, or this machine has none; the text names the flag.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"--policy.device {name}: no such torch device; try auto, cpu or cuda.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"--policy.device {name}: torch sees no CUDA device on this machine; use auto or cpu.")
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        raise ConfigError(
            f"--policy.device {name}: torch sees {count} CUDA device(s) here, the last is cuda:{count - 1}."
        )
    return device
