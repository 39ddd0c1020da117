"""The policy that FPO trains."""

import torch
from torch import nn

from plugrl_server.policy.acceleration.acceleration import accelerated, encoded
from plugrl_server.policy.encoders.observation_encoder import ObservationEncoder
from plugrl_server.policy.flow.flow_policy import FlowPolicy
from plugrl_server.policy.fpo.fpo_policy_config import FPOPolicyConfig
from plugrl_server.policy.fpo.numpy_flow import NumpyFlow
from plugrl_server.policy.fpo.silu_mlp import silu_mlp, time_embedding
from plugrl_server.policy.registration import register_policy
from plugrl_server.policy.state import Tree


@register_policy("fpo-policy")
class FPOPolicy(FlowPolicy):
    """A velocity network of observation, point and time, and a value network of the observation.

    Images go through convolutional networks first, of the actor and of the critic apart, so that neither's learning
    disturbs the other.

    Attributes:
        encoder: Of the actor's images.
        actor: The velocity network.
        critic: The value network, with an encoder of its own.
    """

    config: FPOPolicyConfig

    def __init__(self, config: FPOPolicyConfig) -> None:
        super().__init__(config)
        numbers = self.action_horizon * self.action_dim
        self.encoder = ObservationEncoder(config, self.obs_dim, self.image_shapes)
        critic_encoder = ObservationEncoder(config, self.obs_dim, self.image_shapes)
        width = self.encoder.out_dim
        self.actor = silu_mlp(width + numbers + config.time_embedding, config.actor_hidden_sizes, numbers)
        self.critic = nn.Sequential(critic_encoder, silu_mlp(width, config.critic_hidden_sizes, 1))
        self.to(self.device, self.dtype)
        self._encoded = accelerated(encoded, config, self.device)
        self._outputs = accelerated(_outputs, config, self.device)
        self._value = accelerated(_value, config, self.device)
        self._numpy_flow = NumpyFlow(self.actor, numbers, self.num_steps, config.time_embedding, config.output_scale)

    def condition(self, features: Tree) -> torch.Tensor:
        """Return the states and encoded images side by side, [N, width]."""
        return self._encoded(self.encoder, features)

    def velocity(self, features: torch.Tensor, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Return the velocity f4[N, H, A] at points f4[N, H, A] and times f4[N]."""
        inputs = torch.cat([features, x.flatten(1), time_embedding(t, self.config.time_embedding)], -1)
        return self._outputs(self.actor, inputs.to(self.dtype)).float().view_as(x) * self.config.output_scale

    def forward(self, features: Tree, x: torch.Tensor, noise: torch.Tensor, steps: range) -> list[torch.Tensor]:
        """Return the states that steps lead to, as `DenoisingPolicy.forward` does, in NumPy where that is quicker."""
        if self.image_keys or self.early_steps or not self._numpy_flow.usable(len(x)):
            return super().forward(features, x, noise, steps)
        std = 0.0 if self.deterministic else self.exploration_std
        states = []
        for k, mean in zip(steps, self._numpy_flow(features.numpy(), x.flatten(1).numpy(), steps), strict=True):
            if std:
                mean += std * noise[k].flatten(1).numpy()
            states.append(torch.from_numpy(mean).view_as(x))
        return states

    def value(self, features: Tree) -> torch.Tensor:
        """Return the value of N observations, f4[N]."""
        return self._value(self.critic, features).squeeze(-1).float()


def _outputs(actor: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    outputs: torch.Tensor = actor(inputs)
    return outputs


def _value(critic: nn.Module, features: Tree) -> torch.Tensor:
    value: torch.Tensor = critic(features)
    return value
