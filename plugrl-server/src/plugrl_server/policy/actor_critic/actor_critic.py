"""The base of actor-critic policies: what PPO asks of a policy, and quick inference."""

import abc
from typing import Any

import numpy as np
import torch

from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning.normalizer import RunningNormalizer
from plugrl_server.policy.actor_critic.actor_critic_config import ActorCriticConfig
from plugrl_server.policy.actor_critic.mlp import NumpyMLP, tanh_mlp
from plugrl_server.policy.base_torch_policy import BaseTorchPolicy

FLOAT32_MAX = float(np.finfo(np.float32).max)


class ActorCritic(BaseTorchPolicy):
    """Separate tanh MLPs for the action distribution and the value, over normalised states.

    The normaliser is part of the module, so weights and statistics are saved, loaded and copied together.

    Args:
        config: With its dimensions filled.
        outputs: Numbers the actor puts out for one chunk.
        actor_gain: Gain of the actor's last layer.

    Attributes:
        actor: The network of the action distribution.
        critic: The network of the value.
        normalizer: Running statistics of observations; `update_normalizer` moves them.
        obs_dim: Summed width of the states it reads.
    """

    config: ActorCriticConfig

    def __init__(self, config: ActorCriticConfig, outputs: int, actor_gain: float) -> None:
        super().__init__(config)
        if config.obs_dim is None:
            raise ConfigError(f"{type(self).__name__} needs --policy.obs-dim, or a client that declares its spaces.")
        self.obs_dim = config.obs_dim
        self.state_keys = config.state_keys
        self.image_keys = ()
        self.action_horizon = config.action_horizon
        self.actor = tanh_mlp(self.obs_dim, config.hidden_sizes, outputs, actor_gain)
        self.critic = tanh_mlp(self.obs_dim, config.hidden_sizes, 1, 1.0)
        self.normalizer = RunningNormalizer((self.obs_dim,))
        self._numpy_actor = NumpyMLP(self.actor)

    # Learning ----------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def evaluate(self, features: torch.Tensor, sample: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return log-probability and entropy of N chunks, and the value of N observations, each f4[N].

        Args:
            features: From `features`, [N, obs_dim].
            sample: The `sample` of the runtime state, [N, ...].
        """

    def features(self, observed: torch.Tensor) -> torch.Tensor:
        """Return what the networks take of stacked `observe` results [N, obs_dim]; constant within an iteration."""
        inputs = self.normalizer(observed) if self.config.normalize_observations else observed
        return inputs.to(next(self.actor.parameters()).dtype)

    def value(self, features: torch.Tensor) -> torch.Tensor:
        """Return the value of N observations, f4[N]."""
        value: torch.Tensor = self.critic(features)
        return value.squeeze(-1).float()

    def update_normalizer(self, observed: torch.Tensor) -> None:
        """Take N more observations into the statistics; only ever between iterations."""
        if self.config.normalize_observations:
            self.normalizer.update(observed)

    # Acting ------------------------------------------------------------------------------------------------------

    def observe(self, obs: dict[str, Any]) -> np.ndarray:
        """Return what this policy reads of an observation: its states side by side, f4[n, obs_dim]."""
        states = obs["states"]
        keys = sorted(states) if self.state_keys is None else self.state_keys
        observed = np.empty((len(states[keys[0]]), self.obs_dim), np.float32)
        start = 0
        for key in keys:
            state = states[key]
            part = observed[:, start : start + state.shape[1]]
            if state.dtype == np.float64:  # beyond float32's range it would become infinite
                np.clip(state, -FLOAT32_MAX, FLOAT32_MAX, out=part, casting="same_kind")
            else:
                part[:] = state
            start += state.shape[1]
        return observed

    def check_observation(self, obs: dict[str, Any]) -> str | None:
        """Return what is wrong with an observation: states that are missing, or another summed width."""
        if (problem := super().check_observation(obs)) is not None:
            return problem
        states = obs["states"]
        width = sum(states[key].shape[1] for key in (states if self.state_keys is None else self.state_keys))
        if width != self.obs_dim:
            return f"obs_dim {width}, this run has {self.obs_dim}"
        return None

    def actor_outputs(self, obs: dict[str, Any]) -> np.ndarray:
        """Return the actor's outputs f4[n, outputs] for an observation of n environments."""
        observed = self.observe(obs)
        if not self._numpy_actor.usable:
            with torch.inference_mode():
                outputs: np.ndarray = (
                    self.actor(self.features(torch.from_numpy(observed).to(self.device))).float().cpu().numpy()
                )
                return outputs
        if self.config.normalize_observations:
            self.normalizer.normalize_array(observed)
        return self._numpy_actor(observed)
