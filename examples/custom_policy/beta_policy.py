"""A policy of one's own, `beta-policy`: bounded actions from a Beta distribution, over waves of the states."""

import dataclasses
from typing import ClassVar

import numpy as np
import torch
from plugrl_protocol.spaces import BoxSpace
from plugrl_server.policy.action_spaces import to_env_actions
from plugrl_server.policy.actor_critic.actor_critic import ActorCritic
from plugrl_server.policy.actor_critic.actor_critic_config import ActorCriticConfig
from plugrl_server.policy.actor_critic.mlp import tanh_mlp
from plugrl_server.policy.registration import register_policy, register_policy_config
from torch import nn
from torch.nn.functional import softplus


@register_policy_config("beta-policy")
@dataclasses.dataclass
class BetaPolicyConfig(ActorCriticConfig):
    """A Beta distribution between the bounds of every action (Chou et al. 2017): no sample is ever clipped."""

    action_kinds: ClassVar = ("box",)
    algorithms: ClassVar = ("ppo",)  # ppo knows its own policies; this one says that it is written for ppo
    waves: int = 16
    """Learned frequencies whose sine and cosine the networks see beside the states."""


class Waves(nn.Module):
    """The policy's own features: states, and sine and cosine of learned combinations of them."""

    def __init__(self, inputs: int, waves: int):
        super().__init__()
        self.phase = nn.Linear(inputs, waves)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        phase = self.phase(states)
        return torch.cat([states, phase.sin(), phase.cos()], -1)


@register_policy("beta-policy")
class BetaPolicy(ActorCritic):
    """The actor gives two numbers per action number; the runtime state keeps the sample between 0 and 1."""

    runs_in_numpy: ClassVar = False  # its networks begin with Waves, which only torch knows

    def __init__(self, config: BetaPolicyConfig):
        super().__init__(config, 2 * config.action_horizon * config.action_dim, 0.01)
        self.action_dim = config.action_dim
        self.space = None
        self.to(self.device, self.feature_dtype)
        if config.action_space is not None:
            self.adopt_action_space(config.action_space)

    def make_actor(self, inputs: int, outputs: int, gain: float) -> nn.Sequential:
        waves = self.config.waves
        return nn.Sequential(
            Waves(inputs, waves), *tanh_mlp(inputs + 2 * waves, self.config.hidden_sizes, outputs, gain)
        )

    def make_critic(self, inputs: int) -> nn.Sequential:
        return self.make_actor(inputs, 1, 1.0)

    def adopt_action_space(self, action_space) -> None:
        if not isinstance(action_space, BoxSpace) or not np.isfinite([action_space.low, action_space.high]).all():
            raise ValueError(f"beta-policy needs a Box action space with finite bounds, got {action_space}")
        self.space = action_space

    def distribution(self, outputs: torch.Tensor) -> torch.distributions.Beta:
        """Both parameters are above 1, so that the density has a single peak."""
        return torch.distributions.Beta(*(1 + softplus(outputs)).chunk(2, -1), validate_args=False)

    def get_action_and_runtime_state(self, obs):
        beta = self.distribution(torch.from_numpy(self.actor_outputs(obs)))
        if self.deterministic:
            sample = beta.mean.numpy()
        else:
            parameters = beta.concentration1.numpy(), beta.concentration0.numpy()
            sample = self.rng.beta(*parameters).astype(np.float32).clip(1e-6, 1 - 1e-6)
        unit = sample.reshape(len(sample), self.action_horizon, -1)
        low, high = (-1.0, 1.0) if self.space is None else (self.space.low.ravel(), self.space.high.ravel())
        return to_env_actions(self.space, (low + (high - low) * unit).astype(np.float32)), {"sample": sample}

    def evaluate(self, features, sample):
        outputs, value = self.outputs_and_value(features)
        beta = self.distribution(outputs)
        return beta.log_prob(sample).sum(-1), beta.entropy().sum(-1), value
