"""Configuration of the DPPO paper's Gaussian policy."""

import dataclasses
from typing import ClassVar

from plugrl_server.common.config_error import require
from plugrl_server.policy.actor_critic.actor_critic_config import ActorCriticBaseConfig
from plugrl_server.policy.registration import register_policy_config


@register_policy_config("dppo-gaussian-policy")
@dataclasses.dataclass
class DPPOGaussianPolicyConfig(ActorCriticBaseConfig):
    """A Gaussian over action chunks by residual Mish MLPs, its standard deviation fixed or learned within bounds."""

    action_kinds: ClassVar[tuple[str, ...]] = ("box",)

    action_horizon: int = 4
    """Actions in a chunk."""
    actor_hidden_sizes: tuple[int, ...] = (512, 512, 512)
    """Widths of the hidden layers of the actor; two after the first are a residual block."""
    critic_hidden_sizes: tuple[int, ...] = (256, 256, 256)
    """Widths of the hidden layers of the critic."""
    std: float = 0.1
    """Standard deviation at the start, in units in which an action's bounds are -1 and 1."""
    learn_std: bool = True
    """Learn a standard deviation for each number of an action, between min_std and max_std."""
    min_std: float = 0.01
    max_std: float = 0.2

    def check(self) -> None:
        """Refuse sizes that make no network, and deviations out of order."""
        super().check()
        for name in ("actor_hidden_sizes", "critic_hidden_sizes"):
            sizes = getattr(self, name)
            require(
                len(sizes) > 0 and all(size >= 1 for size in sizes),
                f"--policy.{name.replace('_', '-')} {' '.join(map(str, sizes))}: name widths of at least 1.",
            )
        require(0 < self.std < float("inf"), f"--policy.std {self.std}: must be a finite number above 0.")
        require(
            not self.learn_std or 0 < self.min_std < self.std < self.max_std < float("inf"),
            f"--policy.std {self.std}: must lie between --policy.min-std {self.min_std} and --policy.max-std "
            f"{self.max_std}, or be fixed by --policy.no-learn-std.",
        )
