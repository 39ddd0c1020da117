"""Independent categorical distributions over the parts of a discrete action."""

from typing import Any

import numpy as np
import torch
from plugrl_protocol.spaces import ActionSpace, DiscreteSpace

from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning.trees import Tree
from plugrl_server.policy.action_spaces import action_dim, choices
from plugrl_server.policy.actor_critic.actor_critic import ActorCritic
from plugrl_server.policy.categorical.categorical_policy_config import CategoricalPolicyConfig
from plugrl_server.policy.registration import register_policy
from plugrl_server.policy.state import PolicyRuntimeState

LOGITS_GAIN = 0.01
NEVER = -1e8
"""Logit of a choice that a part does not have: its probability is exactly 0, its entropy term too."""

TINY = np.finfo(np.float32).tiny


@register_policy("categorical-policy")
class CategoricalPolicy(ActorCritic):
    """The actor gives the logits of every part of every action of the chunk.

    Parts may differ in their number of choices (MultiDiscrete); their logits are padded to the largest. The runtime
    state keeps the choices: `{"sample": i8[n, H * parts]}`. Actions start at 0; the server adds Discrete's `start`.
    """

    config: CategoricalPolicyConfig

    def __init__(self, config: CategoricalPolicyConfig) -> None:
        space = config.action_space
        if space is None:
            if config.action_dim is None:
                raise ConfigError("categorical-policy needs --policy.action-dim, or a client that declares its spaces.")
            space = DiscreteSpace(config.action_dim)
        per_action = choices(space)
        super().__init__(config, config.action_horizon * sum(per_action), LOGITS_GAIN)
        self._space: ActionSpace = space
        self.action_dim = len(per_action) if space.shape else None
        per_chunk = np.array(per_action * config.action_horizon)
        self._parts, self._most = len(per_chunk), int(per_chunk.max())
        has = np.arange(self._most) < per_chunk[:, None]
        self._has_choice = None if has.all() else has
        self.to(self.device, self.feature_dtype)

    def adopt_action_space(self, action_space: ActionSpace) -> None:
        """Check that the declared space has the choices this policy was built for.

        Raises:
            ValueError: It has others.
        """
        if action_space.kind == "box":
            raise ValueError(f"categorical-policy needs a Discrete action space, got {action_space}")
        if choices(action_space) != choices(self._space):
            theirs, ours = action_dim(action_space), action_dim(self._space)
            if theirs == ours:
                raise ValueError(f"action space {action_space}, this run has {self._space}")
            raise ValueError(f"action_dim {theirs}, this run has {ours}")
        self._space = action_space

    def get_action_and_runtime_state(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Choose n chunks: i8[n, H] for Discrete, [n, H, *shape] for the others, and the choices side by side."""
        outputs = self.actor_outputs(obs)
        logits = self._padded_array(outputs)
        if not self.deterministic:
            # argmax of p / Exp(1) draws from p (the Gumbel trick, without the two logarithms).
            np.exp(logits - logits.max(-1, keepdims=True), out=logits)
            logits /= np.maximum(self.rng.standard_exponential(logits.shape, dtype=np.float32), TINY)
        sample = logits.argmax(-1)
        if not np.isfinite(outputs).all():
            sample = np.full(sample.shape, np.nan)  # argmax would hide that the weights are lost
        return sample.reshape(len(sample), self.action_horizon, *self._space.shape), {"sample": sample}

    def evaluate(self, features: Tree, sample: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return log-probability and entropy of N chunks, and the value of N observations, each f4[N]."""
        outputs, value = self.outputs_and_value(features)
        log_p = torch.log_softmax(self._padded_tensor(outputs), -1)
        log_prob = log_p.gather(-1, sample.unsqueeze(-1)).squeeze(-1).sum(-1)
        entropy = -(log_p.exp() * log_p).sum((-2, -1))
        return log_prob, entropy, value

    def _padded_array(self, outputs: np.ndarray) -> np.ndarray:
        """Return the actor's outputs as logits [n, parts, most choices]."""
        if self._has_choice is None:
            return outputs.reshape(len(outputs), self._parts, self._most)
        logits = np.full((len(outputs), *self._has_choice.shape), NEVER, np.float32)
        logits[:, self._has_choice] = outputs
        return logits

    def _padded_tensor(self, outputs: torch.Tensor) -> torch.Tensor:
        if self._has_choice is None:
            return outputs.view(len(outputs), self._parts, self._most)
        has = torch.from_numpy(self._has_choice).to(outputs.device)
        logits = outputs.new_full((len(outputs), *has.shape), NEVER)
        logits[:, has] = outputs
        return logits
