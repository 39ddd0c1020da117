"""Configuration of the policy of soft actor-critic."""

import dataclasses
from typing import ClassVar

from plugrl_server.common.config_error import require
from plugrl_server.policy.actor_critic.actor_critic_config import ActorCriticBaseConfig
from plugrl_server.policy.registration import register_policy_config


@register_policy_config("sac-policy")
@dataclasses.dataclass
class SACPolicyConfig(ActorCriticBaseConfig):
    """A Gaussian squashed by tanh into the bounds of a Box space, and twin critics of its chunks."""

    action_kinds: ClassVar[tuple[str, ...]] = ("box",)

    normalize_observations: bool = False
    """Normalise states by their running mean and variance, clipped to +-10."""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of the actor and of each critic."""

    def check(self) -> None:
        """Refuse sizes below 1."""
        super().check()
        require(
            len(self.hidden_sizes) >= 1 and all(size >= 1 for size in self.hidden_sizes),
            f"--policy.hidden-sizes {' '.join(map(str, self.hidden_sizes))}: at least one width, each at least 1.",
        )
