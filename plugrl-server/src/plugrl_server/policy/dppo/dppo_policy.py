"""The diffusion MLP of Ren et al. 2024: noise prediction and value by residual MLPs."""

from collections.abc import Iterator

import torch
from torch import nn

from plugrl_server.policy.acceleration.acceleration import accelerated, encoded
from plugrl_server.policy.diffusion.diffusion_policy import DiffusionPolicy
from plugrl_server.policy.dppo.dppo_policy_config import DPPOPolicyConfig
from plugrl_server.policy.dppo.residual_mlp import StepEmbedding, residual_mlp
from plugrl_server.policy.encoders.observation_encoder import ObservationEncoder
from plugrl_server.policy.registration import register_policy
from plugrl_server.policy.state import Tree


@register_policy("dppo-policy")
class DPPOPolicy(DiffusionPolicy):
    """A diffusion policy whose noise network (ReLU) and value network (Mish) are residual MLPs over the states.

    Images go through convolutional networks first, of the actor and of the critic apart, so that neither's learning
    disturbs the other.

    Attributes:
        encoder: Of the actor's images.
        embedding: Of the denoising step, a part of the actor.
        actor: Predicts the noise from the chunk, the embedding and the states.
        critic_encoder: Of the critic's images.
        critic: The network of the value.
    """

    config: DPPOPolicyConfig

    def __init__(self, config: DPPOPolicyConfig) -> None:
        super().__init__(config)
        numbers = self.action_horizon * self.action_dim
        self.encoder = ObservationEncoder(config, self.obs_dim, self.image_shapes)
        self.critic_encoder = ObservationEncoder(config, self.obs_dim, self.image_shapes)
        width = self.encoder.out_dim
        self.embedding = StepEmbedding(self.num_steps, config.time_embedding)
        self.actor = residual_mlp(numbers + config.time_embedding + width, config.actor_hidden_sizes, numbers, nn.ReLU)
        self.critic = residual_mlp(width, config.critic_hidden_sizes, 1, nn.Mish)
        self.to(self.device, self.dtype)
        self._encoded = accelerated(encoded, config, self.device)
        self._noise_in = accelerated(_noise_in, config, self.device)
        self._value = accelerated(_value, config, self.device)

    def condition(self, features: Tree) -> torch.Tensor:
        """Return the states and encoded images side by side, [N, width]."""
        return self._encoded(self.encoder, features)

    def predict_noise(self, features: torch.Tensor, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        """Return the noise in x, f4[N, H, A]; arguments as `DiffusionPolicy.predict_noise`."""
        noise = self._noise_in(self.embedding, self.actor, features, x.flatten(1).to(self.dtype), k)
        return noise.float().view_as(x)

    def value(self, features: Tree) -> torch.Tensor:
        """Return the value of N observations, f4[N]."""
        return self._value(self.critic_encoder, self.critic, features).squeeze(-1).float()

    def actor_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters of the actor, its encoder and the step embedding."""
        yield from self.encoder.parameters()
        yield from self.embedding.parameters()
        yield from self.actor.parameters()

    def critic_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters of the critic and its encoder."""
        yield from self.critic_encoder.parameters()
        yield from self.critic.parameters()


def _noise_in(
    embedding: nn.Module, actor: nn.Module, features: torch.Tensor, x: torch.Tensor, k: torch.Tensor
) -> torch.Tensor:
    noise: torch.Tensor = actor(torch.cat([x, embedding(k), features], 1))
    return noise


def _value(encoder: nn.Module, critic: nn.Module, features: Tree) -> torch.Tensor:
    value: torch.Tensor = critic(encoder(features))
    return value
