"""Configuration of the categorical policy."""

import dataclasses
from typing import ClassVar

from plugrl_server.policy.actor_critic.actor_critic_config import ActorCriticConfig
from plugrl_server.policy.registration import register_policy_config


@register_policy_config("categorical-policy")
@dataclasses.dataclass
class CategoricalPolicyConfig(ActorCriticConfig):
    """Independent categorical distributions over the parts of a Discrete, MultiDiscrete or MultiBinary action.

    Without a declaration, `action_dim` n stands for Discrete(n).
    """

    action_kinds: ClassVar[tuple[str, ...]] = ("discrete", "multi_discrete", "multi_binary")


@register_policy_config("categorical-policy", "atari")
@dataclasses.dataclass
class CategoricalPolicyAtariConfig(CategoricalPolicyConfig):
    """CleanRL's Atari agent: one linear layer each for logits and value, on the Nature network that both share."""

    hidden_sizes: tuple[int, ...] = ()
