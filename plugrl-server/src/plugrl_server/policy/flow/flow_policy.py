"""Flow matching (Lipman et al. 2023) as a policy: x_t = t eps + (1 - t) a, from noise at t = 1 to a chunk at t = 0."""

import abc
from collections.abc import Iterable

import torch
from torch import nn

from plugrl_server.policy.denoising.denoising_policy import DenoisingPolicy
from plugrl_server.policy.flow.flow_policy_config import FlowPolicyConfig
from plugrl_server.policy.state import Tree


class FlowPolicy(DenoisingPolicy):
    """A policy that follows dx = velocity dt from noise (t = 1) to a chunk (t = 0) in `num_steps` Euler steps.

    A subclass writes `velocity` and `value`, keeps the critic's networks in the module `critic` (or overrides
    `critic_parameters`), and ends its `__init__` with `self.to(self.device, self.dtype)`. See `DenoisingPolicy` for
    observations, bounds and chunks.

    Args:
        config: With its dimensions filled.

    Attributes:
        critic: The networks `value` depends on; all other parameters are the actor's.
        exploration_std: Standard deviation of the noise that each Euler step adds.
    """

    config: FlowPolicyConfig
    critic: nn.Module

    def __init__(self, config: FlowPolicyConfig) -> None:
        super().__init__(config)
        self.exploration_std = config.exploration_noise / config.num_steps**0.5

    # What a subclass writes --------------------------------------------------------------------------------------

    @abc.abstractmethod
    def velocity(self, features: Tree, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Return the velocity dx/dt, f4[N, H, A], whose target is u = eps - a.

        Args:
            features: From `condition`, of leading N.
            x: Points of the flow, f4[N, H, A].
            t: Their times, f4[N], 1 at the noise and 0 at the chunk.
        """

    @abc.abstractmethod
    def value(self, features: Tree) -> torch.Tensor:
        """Return the value of N observations, f4[N]; takes what `features` returned."""

    # Sampling ----------------------------------------------------------------------------------------------------

    def denoise_step(self, features: Tree, x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean f4[N, H, A] and standard deviation f4[] of the next state: one Euler step."""
        mean = x - self.velocity(features, x, 1 - k / self.num_steps) / self.num_steps
        return mean, x.new_tensor(self.exploration_std)

    # Parameters --------------------------------------------------------------------------------------------------

    def critic_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters of the module `critic`."""
        return self.critic.parameters()

    def actor_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters that are not the critic's."""
        of_critic = set(map(id, self.critic_parameters()))
        return [parameter for parameter in self.parameters() if id(parameter) not in of_critic]
