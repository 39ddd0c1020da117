"""A policy that learns nothing: random actions in bounds."""

from typing import Any

import numpy as np
import torch
from plugrl_protocol.spaces import ActionSpace, BoxSpace
from torch import nn

from plugrl_server.learning.trees import leading
from plugrl_server.policy.action_spaces import choices
from plugrl_server.policy.base_torch_policy import BaseTorchPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig
from plugrl_server.policy.registration import register_policy
from plugrl_server.policy.state import PolicyRuntimeState

_FAR = 1e30
"""Bounds beyond this count as infinite."""


@register_policy("dummy-policy")
class DummyPolicy(BaseTorchPolicy):
    """Uniform actions; middle of the space when deterministic. Its one weight is there to be saved and loaded."""

    def __init__(self, config: DummyPolicyConfig) -> None:
        super().__init__(config)
        self.action_horizon = config.action_horizon
        self.weight = nn.Parameter(torch.zeros(1))
        self.to(self.device)
        self._space: ActionSpace | None = None
        self._shape: tuple[int, ...] = (config.action_dim,)
        self._low, self._high = np.full(self._shape, -1, np.float32), np.full(self._shape, 1, np.float32)
        self.action_dim = config.action_dim
        if config.action_space is not None:
            self.adopt_action_space(config.action_space)

    def adopt_action_space(self, action_space: ActionSpace) -> None:
        """Act in the declared space from now on."""
        self._space, self._shape = action_space, action_space.shape
        if isinstance(action_space, BoxSpace):
            self._low, self._high = _interval(action_space)
            self.action_dim = int(self._low.size)
        else:
            self._low = np.zeros(self._shape, np.float32)
            self._high = np.array(choices(action_space), np.float32).reshape(self._shape)
            self.action_dim = int(self._low.size) if self._shape else None

    def get_action_and_runtime_state(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Draw n chunks, whatever the observation."""
        shape = (leading(obs) or 0, self.action_horizon, *self._shape)
        part = np.full(shape, 0.5, np.float32) if self.deterministic else self.rng.random(shape, dtype=np.float32)
        part *= self._high - self._low
        part += self._low
        if self._space is None or isinstance(self._space, BoxSpace):
            return part, None
        return np.minimum(part, self._high - 1).astype(np.int64), None


def _interval(space: BoxSpace) -> tuple[np.ndarray, np.ndarray]:
    """Return finite bounds inside a Box's: an interval of 2 where a side is infinite, since a draw needs one."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    low = np.where(np.abs(low) < _FAR, low, np.where(np.abs(high) < _FAR, high - 2, -1))
    high = np.where(np.abs(high) < _FAR, high, low + 2)
    return low.astype(np.float32), high.astype(np.float32)
