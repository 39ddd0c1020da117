"""The Gaussian policy of Ren et al. 2024 (arXiv 2409.00588): what they fine-tune by PPO beside diffusion policies."""

import math
from typing import ClassVar

import numpy as np
import torch
from plugrl_protocol.spaces import ActionSpace
from torch import nn

from plugrl_server.learning.trees import Tree
from plugrl_server.policy.action_spaces import to_env_actions
from plugrl_server.policy.denoising.action_bounds import ActionBounds
from plugrl_server.policy.dppo.residual_mlp import residual_mlp
from plugrl_server.policy.dppo_gaussian.dppo_gaussian_policy_config import DPPOGaussianPolicyConfig
from plugrl_server.policy.gaussian.gaussian_policy import GaussianPolicy
from plugrl_server.policy.registration import register_policy


@register_policy("dppo-gaussian-policy")
class DPPOGaussianPolicy(GaussianPolicy):
    """A diagonal Gaussian over chunks in units in which the declared bounds are -1 and 1.

    Actor and critic are residual MLPs with Mish; a tanh keeps the mean within the bounds. Log-probability and entropy
    are means over the numbers of a chunk, not sums, as in the paper's code: its clip_coef of 0.01 is meant for these.
    A learned deviation, one for each number of an action, is kept between its bounds by a sigmoid; the paper's code
    clamps it, which leaves no gradient to bring it back.
    """

    config: DPPOGaussianPolicyConfig  # type: ignore[assignment] # it has all fields that the base reads
    uid: ClassVar[str] = "dppo-gaussian-policy"
    runs_in_numpy: ClassVar[bool] = False
    action_dim: int
    fixed_log_std: torch.Tensor

    def __init__(self, config: DPPOGaussianPolicyConfig) -> None:
        super().__init__(config)  # type: ignore[arg-type]
        self._bounds = ActionBounds(self._space, self.action_dim)

    def make_actor(self, inputs: int, outputs: int, gain: float) -> nn.Sequential:  # noqa: ARG002 - torch's own weights
        """Return the actor's network."""
        return nn.Sequential(residual_mlp(inputs, self.config.actor_hidden_sizes, outputs, nn.Mish), nn.Tanh())

    def make_critic(self, inputs: int) -> nn.Sequential:
        """Return the critic's network."""
        return residual_mlp(inputs, self.config.critic_hidden_sizes, 1, nn.Mish)

    # Deviations --------------------------------------------------------------------------------------------------

    def make_deviations(self, numbers: int) -> None:
        """Add one parameter for each number of an action, at `std`; a buffer where it is fixed."""
        config = self.config
        per_action = numbers // config.action_horizon
        if config.learn_std:
            part = math.log(config.std / config.min_std) / math.log(config.max_std / config.min_std)
            self.raw_std = nn.Parameter(torch.full((per_action,), math.log(part / (1 - part))))
        else:
            self.register_buffer("fixed_log_std", torch.full((numbers,), math.log(config.std)))

    def log_deviations(self) -> torch.Tensor:
        """Return the log standard deviation of every number in a chunk, f4[H * action_dim]; all H actions' alike."""
        config = self.config
        if not config.learn_std:
            return self.fixed_log_std.float()
        lowest, highest = math.log(config.min_std), math.log(config.max_std)
        return (lowest + (highest - lowest) * self.raw_std.float().sigmoid()).repeat(config.action_horizon)

    # Actions -----------------------------------------------------------------------------------------------------

    def adopt_action_space(self, action_space: ActionSpace) -> None:
        """Map chunks to these bounds from now on.

        Raises:
            ValueError: It is no Box of this policy's action_dim.
        """
        super().adopt_action_space(action_space)
        self._bounds = ActionBounds(self._space, self.action_dim)

    def to_actions(self, chunks: np.ndarray) -> np.ndarray:
        """Return chunks f4[n, H, action_dim] as the environments take them: the declared shape, dtype and bounds."""
        return to_env_actions(self._space, self._bounds.denormalize(chunks))

    # Learning ----------------------------------------------------------------------------------------------------

    def evaluate(self, features: Tree, sample: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return log-probability and entropy of N chunks, both over their size, and the value, each f4[N]."""
        log_prob, entropy, value = super().evaluate(features, sample)
        return log_prob / sample.shape[-1], entropy / sample.shape[-1], value
