"""A policy of one's own, `beta-policy`: bounded actions from a Beta distribution."""

import dataclasses
from typing import ClassVar

import numpy as np
import torch
from plugrl_protocol.spaces import BoxSpace
from plugrl_server.policy.action_spaces import to_env_actions
from plugrl_server.policy.actor_critic.actor_critic import ActorCritic
from plugrl_server.policy.actor_critic.actor_critic_config import ActorCriticConfig
from plugrl_server.policy.registration import register_policy, register_policy_config
from torch.nn.functional import softplus


@register_policy_config("beta-policy")
@dataclasses.dataclass
class BetaPolicyConfig(ActorCriticConfig):
    """A Beta distribution between the bounds of every action (Chou et al. 2017): no sample is ever clipped."""

    action_kinds: ClassVar = ("box",)
    algorithms: ClassVar = ("ppo",)  # ppo knows its own policies; this one says that it is written for ppo


@register_policy("beta-policy")
class BetaPolicy(ActorCritic):
    """The actor gives two numbers per action number; the runtime state keeps the sample between 0 and 1."""

    def __init__(self, config: BetaPolicyConfig):
        super().__init__(config, outputs=2 * config.action_horizon * config.action_dim, actor_gain=0.01)
        self.action_dim, self.space = config.action_dim, None
        self.to(self.device, self.feature_dtype)
        if config.action_space is not None:
            self.adopt_action_space(config.action_space)

    def adopt_action_space(self, action_space):
        if not isinstance(action_space, BoxSpace) or not np.isfinite([action_space.low, action_space.high]).all():
            raise ValueError(f"beta-policy needs a Box action space with finite bounds, got {action_space}")
        self.space = action_space

    def distribution(self, outputs):
        """Both parameters are above 1, so that the density has a single peak."""
        return torch.distributions.Beta(*(1 + softplus(outputs)).chunk(2, -1), validate_args=False)

    def get_action_and_runtime_state(self, obs):
        beta = self.distribution(torch.from_numpy(self.actor_outputs(obs)))
        if self.deterministic:
            sample = beta.mean.numpy()
        else:  # from self.rng, whose state a checkpoint holds
            sample = self.rng.beta(beta.concentration1.numpy(), beta.concentration0.numpy())
            sample = sample.astype(np.float32).clip(1e-6, 1 - 1e-6)
        unit = sample.reshape(len(sample), self.action_horizon, -1)
        low, high = (-1.0, 1.0) if self.space is None else (self.space.low.ravel(), self.space.high.ravel())
        return to_env_actions(self.space, (low + (high - low) * unit).astype(np.float32)), {"sample": sample}

    def evaluate(self, features, sample):
        """Return log-probability and entropy of N chunks, and the value of N observations, each f4[N]."""
        outputs, value = self.outputs_and_value(features)
        beta = self.distribution(outputs)
        return beta.log_prob(sample).sum(-1), beta.entropy().sum(-1), value
