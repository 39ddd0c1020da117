"""The diffusion MLP of Ren et al. 2024: noise prediction and value by residual MLPs."""

from collections.abc import Iterator

import torch
from torch import nn

from plugrl_server.policy.diffusion.diffusion_policy import DiffusionPolicy
from plugrl_server.policy.dppo.dppo_policy_config import DPPOPolicyConfig
from plugrl_server.policy.dppo.residual_mlp import StepEmbedding, residual_mlp
from plugrl_server.policy.registration import register_policy


@register_policy("dppo-policy")
class DPPOPolicy(DiffusionPolicy):
    """A diffusion policy whose noise network (ReLU) and value network (Mish) are residual MLPs over the states.

    Attributes:
        embedding: Of the denoising step, a part of the actor.
        actor: Predicts the noise from the chunk, the embedding and the states.
        critic: The network of the value.
    """

    config: DPPOPolicyConfig

    def __init__(self, config: DPPOPolicyConfig) -> None:
        super().__init__(config)
        numbers = self.action_horizon * self.action_dim
        self.embedding = StepEmbedding(self.num_steps, config.time_dim)
        self.actor = residual_mlp(numbers + config.time_dim + self.obs_dim, config.actor_sizes, numbers, nn.ReLU)
        self.critic = residual_mlp(self.obs_dim, config.critic_sizes, 1, nn.Mish)
        self.to(self.device, self.dtype)

    def predict_noise(self, features: torch.Tensor, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        """Return the noise in x, f4[N, H, A]; arguments as `DiffusionPolicy.predict_noise`."""
        inputs = torch.cat([x.flatten(1).to(self.dtype), self.embedding(k), features], 1)
        noise: torch.Tensor = self.actor(inputs)
        return noise.float().view_as(x)

    def value(self, features: torch.Tensor) -> torch.Tensor:
        """Return the value of N observations, f4[N]."""
        value: torch.Tensor = self.critic(features)
        return value.squeeze(-1).float()

    def actor_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters of the step embedding and the actor."""
        yield from self.embedding.parameters()
        yield from self.actor.parameters()

    def critic_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters of the critic."""
        return self.critic.parameters()
