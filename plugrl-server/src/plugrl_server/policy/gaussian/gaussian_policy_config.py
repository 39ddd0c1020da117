"""Configuration of the Gaussian policy."""

import dataclasses
from typing import ClassVar

from plugrl_server.common.config_error import require
from plugrl_server.policy.actor_critic.actor_critic_config import ActorCriticConfig
from plugrl_server.policy.registration import register_policy_config


@register_policy_config("gaussian-policy")
@dataclasses.dataclass
class GaussianPolicyConfig(ActorCriticConfig):
    """A diagonal Gaussian over the actions of a Box space, its log standard deviations free parameters."""

    action_kinds: ClassVar[tuple[str, ...]] = ("box",)

    initial_log_std: float = 0.0
    """Log standard deviation of every action number at the start."""

    def check(self) -> None:
        """Refuse a deviation that float32 could not hold."""
        super().check()
        require(
            -20 <= self.initial_log_std <= 20,
            f"--policy.initial-log-std {self.initial_log_std}: must lie between -20 and 20.",
        )
