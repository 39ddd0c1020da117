"""The base of actor-critic policies: what PPO asks of a policy, and quick inference."""

import abc
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from plugrl_server.learning.trees import Tree
from plugrl_server.policy.acceleration.acceleration import accelerated
from plugrl_server.policy.actor_critic.actor_critic_config import ActorCriticConfig
from plugrl_server.policy.actor_critic.mlp import NumpyMLP, tanh_mlp
from plugrl_server.policy.encoders.observation_encoder import ObservationEncoder
from plugrl_server.policy.encoders.observation_reader import ReadsObservations


class ActorCritic(ReadsObservations):
    """Separate MLPs for the action distribution and the value, over normalised states and encoded images.

    The convolutional networks of the images are shared by actor and critic, as in CleanRL's Atari file: nearly all of
    the cost is theirs, and what the value teaches them the actor can use. States have nothing to share.

    Args:
        config: With its dimensions filled.
        outputs: Numbers the actor puts out for one chunk.
        actor_gain: Gain of the actor's last layer.

    Attributes:
        encoder: From `features` to the vector both networks take; without parameters where there are no images.
        actor: The network of the action distribution.
        critic: The network of the value.
        runs_in_numpy: Whether the actor is a `tanh_mlp`, which NumPy runs quicker where it is small.
    """

    config: ActorCriticConfig
    runs_in_numpy: ClassVar[bool] = True

    def __init__(self, config: ActorCriticConfig, outputs: int, actor_gain: float) -> None:
        super().__init__(config)
        self.action_horizon = config.action_horizon
        self.feature_dtype = getattr(torch, config.dtype)
        self.encoder = ObservationEncoder(config, self.obs_dim, self.image_shapes)
        self.actor = self.make_actor(self.encoder.out_dim, outputs, actor_gain)
        self.critic = self.make_critic(self.encoder.out_dim)
        self._numpy_actor = NumpyMLP(self.actor)
        self._networks = accelerated(_networks, config, self.device)
        self._value = accelerated(_value, config, self.device)

    def make_actor(self, inputs: int, outputs: int, gain: float) -> nn.Sequential:
        """Return the actor's network."""
        return tanh_mlp(inputs, self.config.hidden_sizes, outputs, gain)

    def make_critic(self, inputs: int) -> nn.Sequential:
        """Return the critic's network, of one output."""
        return tanh_mlp(inputs, self.config.hidden_sizes, 1, 1.0)

    # Learning ----------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def evaluate(self, features: Tree, sample: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return log-probability and entropy of N chunks, and the value of N observations, each f4[N].

        Args:
            features: From `features`, [N, ...].
            sample: The `sample` of the runtime state, [N, ...].
        """

    def outputs_and_value(self, features: Tree) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the actor's outputs f4[N, outputs] and the value f4[N] of N observations."""
        outputs, value = self._networks(self.encoder, self.actor, self.critic, features)
        return outputs.float(), value.squeeze(-1).float()

    def value(self, features: Tree) -> torch.Tensor:
        """Return the value of N observations, f4[N]."""
        return self._value(self.encoder, self.critic, features).squeeze(-1).float()

    # Acting ------------------------------------------------------------------------------------------------------

    def actor_outputs(self, obs: dict[str, Any]) -> np.ndarray:
        """Return the actor's outputs f4[n, outputs] for an observation of n environments."""
        observed = self.observe(obs)
        if self.image_keys or not self.runs_in_numpy or not self._numpy_actor.usable:
            with torch.inference_mode():
                outputs: np.ndarray = self.actor(self.encoder(self.features(observed))).float().cpu().numpy()
                return outputs
        if self.config.normalize_observations:
            self.normalizer.normalize_array(observed)
        return self._numpy_actor(observed)


def _networks(
    encoder: nn.Module, actor: nn.Module, critic: nn.Module, features: Tree
) -> tuple[torch.Tensor, torch.Tensor]:
    encoded = encoder(features)
    return actor(encoded), critic(encoded)


def _value(encoder: nn.Module, critic: nn.Module, features: Tree) -> torch.Tensor:
    value: torch.Tensor = critic(encoder(features))
    return value
