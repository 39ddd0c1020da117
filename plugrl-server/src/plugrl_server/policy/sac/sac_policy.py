"""The policy of soft actor-critic: a Gaussian squashed by tanh, twin critics with targets, and a temperature."""

import copy
import math
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from plugrl_protocol.spaces import ActionSpace, BoxSpace
from torch import nn
from torch.nn import functional

from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning.trees import Tree
from plugrl_server.policy.acceleration.acceleration import accelerated, encoded
from plugrl_server.policy.action_spaces import required_box, to_env_actions
from plugrl_server.policy.actor_critic.mlp import NumpyMLP
from plugrl_server.policy.denoising.action_bounds import ActionBounds
from plugrl_server.policy.encoders.observation_encoder import ObservationEncoder
from plugrl_server.policy.encoders.observation_reader import ReadsObservations
from plugrl_server.policy.registration import register_policy
from plugrl_server.policy.sac.networks import TwinMLP, relu_mlp
from plugrl_server.policy.sac.sac_policy_config import SACPolicyConfig
from plugrl_server.policy.state import PolicyRuntimeState

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def log_std_of(raw: torch.Tensor) -> torch.Tensor:
    """Return what the actor puts out as a log standard deviation between -5 and 2."""
    return LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (torch.tanh(raw) + 1)


def squashed(mean: torch.Tensor, log_std: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a = tanh(u) with u = mean + std noise, and its log-density (Haarnoja et al. 2018, appendix C).

    log pi(a) = sum log N(u; mean, std) - sum log(1 - tanh(u)^2), and that last logarithm is
    2 (log 2 - u - softplus(-2u)), which stays exact where tanh(u) rounds to 1.

    Args:
        mean: f4[n, D].
        log_std: f4[n, D].
        noise: Standard normal, f4[n, D].

    Returns:
        Actions f4[n, D] in (-1, 1), and f4[n].
    """
    u = mean + log_std.exp() * noise
    log_normal = -0.5 * noise.square() - log_std - LOG_SQRT_2PI
    log_slope = 2 * (math.log(2) - u - functional.softplus(-2 * u))
    return torch.tanh(u), (log_normal - log_slope).sum(-1)


@register_policy("sac-policy")
class SACPolicy(ReadsObservations):
    """Chunks of D = H * action_dim numbers in units in which the declared bounds are -1 and 1.

    Numbers of an action without two finite bounds are sent as they are, between -1 and 1. The runtime state holds the
    chunk in these units, which is what the critics rate: `{"sample": f4[n, D]}`.

    Images go through one encoder that learns from the critics' loss; the actor sees what it puts out (as in DrQ,
    Kostrikov et al. 2021). Without images the encoder is the identity and has no parameters.

    Attributes:
        numbers: D, the numbers in a chunk.
        encoder: From features to one vector.
        actor: Mean and raw log standard deviation of u, [n, 2 D].
        critic: Twin networks of (vector, chunk).
        target_encoder: Follows `encoder` slowly; so does `target_critic` follow `critic`.
        log_alpha: Logarithm of the temperature, a float32 scalar.
    """

    config: SACPolicyConfig
    action_dim: int

    def __init__(self, config: SACPolicyConfig) -> None:
        if config.action_dim is None:
            raise ConfigError("sac-policy needs --policy.action-dim, or a client that declares its spaces.")
        super().__init__(config)
        self.action_dim = config.action_dim
        self.action_horizon = config.action_horizon
        self.feature_dtype = getattr(torch, config.dtype)
        self.encoder = ObservationEncoder(config, self.obs_dim, self.image_shapes)
        self.numbers = self.action_horizon * self.action_dim
        self.actor = relu_mlp(self.encoder.out_dim, config.hidden_sizes, 2 * self.numbers)
        self.critic = TwinMLP(self.encoder.out_dim + self.numbers, config.hidden_sizes)
        self.target_encoder = copy.deepcopy(self.encoder).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.to(self.device, self.feature_dtype)
        self.log_alpha = nn.Parameter(torch.zeros((), device=self.device))
        self._encoded = accelerated(encoded, config, self.device)
        self._outputs = accelerated(_outputs, config, self.device)
        self._q_values = accelerated(_q_values, config, self.device)
        self._numpy_actor = NumpyMLP(self.actor, partial(np.maximum, np.float32(0)))
        self._space: BoxSpace | None = None
        self._bounds = ActionBounds(None, self.action_dim)
        if config.action_space is not None:
            self.adopt_action_space(config.action_space)

    def adopt_action_space(self, action_space: ActionSpace) -> None:
        """Scale the actions sent to these bounds from now on.

        Raises:
            ValueError: It is no Box of this policy's action_dim.
        """
        self._space = required_box(action_space, self.action_dim, "sac-policy")
        self._bounds = ActionBounds(self._space, self.action_dim)

    # Learning ----------------------------------------------------------------------------------------------------

    def actor_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters that the policy loss moves."""
        return self.actor.parameters()

    def critic_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters that the critics' loss moves."""
        return chain(self.encoder.parameters(), self.critic.parameters())

    def target_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters that follow `critic_parameters`, in the same order."""
        return chain(self.target_encoder.parameters(), self.target_critic.parameters())

    def encode(self, features: Tree) -> torch.Tensor:
        """Return the vectors [n, width] that actor and critics take."""
        return self._encoded(self.encoder, features)

    def sample(self, vectors: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return chunks f4[n, D] drawn with this noise f4[n, D], and their log-density f4[n].

        Args:
            vectors: From `encode`, [n, width].
            noise: Standard normal.
        """
        mean, raw = self._outputs(self.actor, vectors).float().chunk(2, -1)
        return squashed(mean, log_std_of(raw), noise)

    def q_values(self, vectors: torch.Tensor, chunks: torch.Tensor) -> torch.Tensor:
        """Return both critics' values f4[2, n] of chunks f4[n, D], given `encode`'s vectors [n, width]."""
        return self._q_values(self.critic, vectors, chunks).float()

    def target_q_values(self, features: Tree, chunks: torch.Tensor) -> torch.Tensor:
        """Return both target critics' values f4[2, n] of chunks f4[n, D], given features."""
        return self._q_values(self.target_critic, self._encoded(self.target_encoder, features), chunks).float()

    # Acting ------------------------------------------------------------------------------------------------------

    def get_action_and_runtime_state(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Sample n chunks: actions [n, H, *shape] of the declared dtype within bounds; deterministic: tanh(mean)."""
        mean, raw = np.split(self._actor_outputs(obs), 2, axis=1)
        if self.deterministic:
            return self._act(np.tanh(mean))
        std = np.exp(LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (np.tanh(raw) + 1))
        return self._act(np.tanh(mean + std * self.rng.standard_normal(mean.shape, dtype=np.float32)))

    def uniform_action_and_runtime_state(self, n: int) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Draw n chunks uniformly between the bounds, as exploration begins."""
        return self._act(self.rng.uniform(-1, 1, (n, self.numbers)).astype(np.float32))

    def _act(self, sample: np.ndarray) -> tuple[np.ndarray, PolicyRuntimeState]:
        chunks = sample.reshape(len(sample), self.action_horizon, self.action_dim)
        return to_env_actions(self._space, self._bounds.denormalize(chunks)), {"sample": sample}

    def _actor_outputs(self, obs: dict[str, Any]) -> np.ndarray:
        observed = self.observe(obs)
        if self.image_keys or not self._numpy_actor.usable:
            with torch.inference_mode():
                outputs: np.ndarray = self.actor(self.encoder(self.features(observed))).float().cpu().numpy()
                return outputs
        if self.config.normalize_observations:
            self.normalizer.normalize_array(observed)
        return self._numpy_actor(observed)


def _outputs(actor: nn.Module, vectors: torch.Tensor) -> torch.Tensor:
    outputs: torch.Tensor = actor(vectors)
    return outputs


def _q_values(critic: nn.Module, vectors: torch.Tensor, chunks: torch.Tensor) -> torch.Tensor:
    values: torch.Tensor = critic(torch.cat((vectors, chunks.to(vectors.dtype)), -1))
    return values
