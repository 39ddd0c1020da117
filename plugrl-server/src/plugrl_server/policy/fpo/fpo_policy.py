"""The policy that FPO trains."""

import torch

from plugrl_server.policy.flow.flow_policy import FlowPolicy
from plugrl_server.policy.fpo.fpo_policy_config import FPOPolicyConfig
from plugrl_server.policy.fpo.silu_mlp import silu_mlp, time_embedding
from plugrl_server.policy.registration import register_policy


@register_policy("fpo-policy")
class FPOPolicy(FlowPolicy):
    """A velocity network of observation, point and time, and a value network of the observation.

    Attributes:
        actor: The velocity network.
        critic: The value network.
    """

    config: FPOPolicyConfig

    def __init__(self, config: FPOPolicyConfig) -> None:
        super().__init__(config)
        numbers = self.action_horizon * self.action_dim
        self.actor = silu_mlp(self.obs_dim + numbers + config.time_embedding, config.actor_hidden_sizes, numbers)
        self.critic = silu_mlp(self.obs_dim, config.critic_hidden_sizes, 1)
        self.to(self.device, self.dtype)

    def velocity(self, features: torch.Tensor, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Return the velocity f4[N, H, A] at points f4[N, H, A] and times f4[N]."""
        inputs = torch.cat([features, x.flatten(1), time_embedding(t, self.config.time_embedding)], -1)
        outputs: torch.Tensor = self.actor(inputs.to(self.dtype))
        return outputs.float().view_as(x) * self.config.output_scale

    def value(self, features: torch.Tensor) -> torch.Tensor:
        """Return the value of N observations, f4[N]."""
        value: torch.Tensor = self.critic(features.to(self.dtype))
        return value.squeeze(-1).float()
