"""A diagonal Gaussian over the actions of a Box space."""

import math
from typing import Any, ClassVar

import numpy as np
import torch
from plugrl_protocol.spaces import ActionSpace, BoxSpace
from torch import nn

from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning.trees import Tree
from plugrl_server.policy.action_spaces import required_box, to_env_actions
from plugrl_server.policy.actor_critic.actor_critic import ActorCritic
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig
from plugrl_server.policy.registration import register_policy
from plugrl_server.policy.state import PolicyRuntimeState

MEAN_GAIN = 0.01
LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


@register_policy("gaussian-policy")
class GaussianPolicy(ActorCritic):
    """The actor gives the mean; the log standard deviations are free parameters, the same for every observation.

    The action sent is clipped to the declared bounds. The runtime state keeps the unclipped sample, which is what has
    the density that learning needs: `{"sample": f4[n, H * action_dim]}`.
    """

    config: GaussianPolicyConfig
    uid: ClassVar[str] = "gaussian-policy"
    action_dim: int

    def __init__(self, config: GaussianPolicyConfig) -> None:
        if config.action_dim is None:
            raise ConfigError(f"{self.uid} needs --policy.action-dim, or a client that declares its spaces.")
        numbers = config.action_horizon * config.action_dim
        super().__init__(config, numbers, MEAN_GAIN)
        self.action_dim = config.action_dim
        self.make_deviations(numbers)
        self.to(self.device, self.feature_dtype)
        self._space: BoxSpace | None = None
        if config.action_space is not None:
            self.adopt_action_space(config.action_space)

    def make_deviations(self, numbers: int) -> None:
        """Add the parameters that `log_deviations` reads, for so many numbers in a chunk."""
        self.log_std = nn.Parameter(torch.full((numbers,), self.config.initial_log_std))

    def log_deviations(self) -> torch.Tensor:
        """Return the log standard deviation of every number in a chunk, f4[H * action_dim]."""
        return self.log_std.float()

    def to_actions(self, chunks: np.ndarray) -> np.ndarray:
        """Return chunks f4[n, H, action_dim] as the environments take them: the declared shape, dtype and bounds."""
        return to_env_actions(self._space, chunks)

    def adopt_action_space(self, action_space: ActionSpace) -> None:
        """Clip the actions sent to these bounds from now on.

        Raises:
            ValueError: It is no Box of this policy's action_dim.
        """
        self._space = required_box(action_space, self.action_dim, self.uid)

    def get_action_and_runtime_state(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Sample n chunks: actions [n, H, *shape] of the declared dtype within bounds, and the samples themselves."""
        sample = self.actor_outputs(obs)
        if not self.deterministic:
            noise = self.rng.standard_normal(sample.shape, dtype=np.float32)
            noise *= np.exp(self.log_deviations().detach().cpu().numpy())
            sample += noise
        chunks = sample.reshape(len(sample), self.action_horizon, -1)
        return self.to_actions(chunks), {"sample": sample}

    def evaluate(self, features: Tree, sample: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return log-probability and entropy of N chunks, and the value of N observations, each f4[N]."""
        mean, value = self.outputs_and_value(features)
        log_std = self.log_deviations()
        distance = (sample - mean) * torch.exp(-log_std)
        constant = log_std.sum() + len(log_std) * LOG_SQRT_2PI
        log_prob = -0.5 * distance.square().sum(-1) - constant
        entropy = (constant + 0.5 * len(log_std)).expand(len(sample))
        return log_prob, entropy, value
