"""Configuration of the categorical policy."""

import dataclasses
from typing import ClassVar

from plugrl_server.common.config_error import require
from plugrl_server.policy.actor_critic.actor_critic_config import ActorCriticConfig
from plugrl_server.policy.registration import register_policy_config

MAX_CHOICES = 2**20
"""Choices of all parts together: each is an output of the network."""


@register_policy_config("categorical-policy")
@dataclasses.dataclass
class CategoricalPolicyConfig(ActorCriticConfig):
    """Independent categorical distributions over the parts of a Discrete, MultiDiscrete or MultiBinary action.

    Without a declaration, `action_dim` n stands for Discrete(n).
    """

    action_kinds: ClassVar[tuple[str, ...]] = ("discrete", "multi_discrete", "multi_binary")

    def check(self) -> None:
        """Refuse more choices than a network can have outputs."""
        super().check()
        require(
            self.action_dim is None or self.action_dim <= MAX_CHOICES,
            f"--policy.action-dim {self.action_dim}: a categorical policy has at most {MAX_CHOICES} choices.",
        )


@register_policy_config("categorical-policy", "atari")
@dataclasses.dataclass
class CategoricalPolicyAtariConfig(CategoricalPolicyConfig):
    """CleanRL's Atari agent: one linear layer each for logits and value, on the Nature network that both share."""

    hidden_sizes: tuple[int, ...] = ()
