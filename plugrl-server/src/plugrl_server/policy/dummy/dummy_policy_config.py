"""Configuration of the dummy policy."""

import dataclasses
from typing import Annotated, ClassVar

import tyro
from plugrl_protocol.spaces import ActionSpace

from plugrl_server.common.config_error import require
from plugrl_server.policy.base_policy import BaseTorchPolicyConfig
from plugrl_server.policy.registration import register_policy_config


@register_policy_config("dummy-policy")
@dataclasses.dataclass
class DummyPolicyConfig(BaseTorchPolicyConfig):
    """Needs no declaration; once a client declares its action space, actions are of that space."""

    brings_weights: ClassVar[bool] = True

    action_dim: int = 7
    """Numbers in one action, until a client declares its action space."""
    action_horizon: int = 4
    """Actions in a chunk."""
    action_space: Annotated[ActionSpace | None, tyro.conf.Suppress] = None

    def check(self) -> None:
        """Refuse sizes below 1."""
        for name in ("action_dim", "action_horizon"):
            value = getattr(self, name)
            require(value >= 1, f"--policy.{name.replace('_', '-')} {value}: must be at least 1.")
