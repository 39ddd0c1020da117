"""Configuration of PPO and its presets."""

import dataclasses
from typing import ClassVar

from plugrl_server.algorithm.on_policy.on_policy_config import OnPolicyConfig, flag, require_positive
from plugrl_server.algorithm.registration import register_algo_config
from plugrl_server.common.config_error import require


@register_algo_config("ppo")
@dataclasses.dataclass
class PPOConfig(OnPolicyConfig):
    """PPO with the clipped objective; the defaults are those of CleanRL's continuous-action file."""

    policies: ClassVar[tuple[str, ...] | None] = ("gaussian-policy", "categorical-policy", "dppo-gaussian-policy")

    anneal_learning_rate: bool = True
    """Lower the learning rates linearly to 0 over the run."""
    adam_eps: float = 1e-5
    clip_coef: float = 0.2
    """Half width of the interval around 1 in which the probability ratio counts."""
    clip_vloss: bool = True
    """Clip the change of the value as well."""
    clip_vloss_coef: float | None = None
    """How far the value may change; default: clip_coef."""
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    desired_kl: float | None = None
    """Adapt the learning rates after each epoch: by 1.5 down above twice this KL, up below half of it; none: do not."""
    min_learning_rate: float = 1e-5
    """Lower bound of what desired_kl makes of learning_rate."""
    max_learning_rate: float = 1e-2
    """Upper bound of what desired_kl makes of learning_rate."""

    @property
    def value_clip(self) -> float | None:
        """How far the value may change before its loss is the clipped one's; None: as far as it likes."""
        if not self.clip_vloss:
            return None
        return self.clip_coef if self.clip_vloss_coef is None else self.clip_vloss_coef

    def check(self) -> None:
        """Refuse what can never learn or is out of range."""
        super().check()
        for name in ("adam_eps", "clip_coef", "clip_vloss_coef", "desired_kl", "min_learning_rate"):
            require_positive(self, name)
        for name in ("ent_coef", "vf_coef"):
            value = getattr(self, name)
            require(0 <= value < float("inf"), f"{flag(name)} {value}: must be a finite number of at least 0.")
        if self.desired_kl is not None:
            self._check_adaptive_rate()

    def _check_adaptive_rate(self) -> None:
        require(
            not self.anneal_learning_rate,
            f"--algo.desired-kl {self.desired_kl} sets the learning rate itself: add --algo.no-anneal-learning-rate.",
        )
        require(
            self.min_learning_rate <= self.learning_rate <= self.max_learning_rate,
            f"--algo.learning-rate {self.learning_rate}: must lie between --algo.min-learning-rate "
            f"{self.min_learning_rate} and --algo.max-learning-rate {self.max_learning_rate}.",
        )


@register_algo_config("ppo", "pendulum")
@dataclasses.dataclass
class PPOPendulumConfig(PPOConfig):
    """Pendulum-v1 near the public RL zoo's settings: short sight, a large step, mini-batches of 64.

    What differs from the zoo, and why: gamma is 0.95 (three short runs each were better than with 0.9), and
    the learning rate falls to 0 (at a constant 1e-3 some seeds lose what they found). An iteration is a quarter of the
    zoo's, 256 steps of 4 environments: a whole episode of each, four times as many iterations, and twice as many passes
    over each. Rewards are normalised, so that the critic has the scale of returns at once.
    """

    global_steps: int | None = 102_400
    learning_rate: float = 1e-3
    buffer_size: int = 1024
    update_epochs: int = 20
    gamma: float = 0.95
    clip_vloss: bool = False
    save_interval: int = 20


@register_algo_config("ppo", "discrete")
@dataclasses.dataclass
class PPODiscreteConfig(PPOConfig):
    """CartPole-v1 and its like: CleanRL's discrete file, 4 environments of 128 steps an iteration, a shorter run."""

    global_steps: int | None = 100_000
    learning_rate: float = 2.5e-4
    buffer_size: int = 512
    batch_size: int = 128
    update_epochs: int = 4
    ent_coef: float = 0.01
    save_interval: int = 40


@register_algo_config("ppo", "atari")
@dataclasses.dataclass
class PPOAtariConfig(PPOConfig):
    """Atari games from pixels: CleanRL's Atari file, 8 environments of 128 steps an iteration.

    Rewards are left as they come: the usual wrappers clip them to -1, 0 and 1.
    """

    global_steps: int | None = 10_000_000
    learning_rate: float = 2.5e-4
    buffer_size: int = 1024
    batch_size: int = 256
    update_epochs: int = 4
    clip_coef: float = 0.1
    ent_coef: float = 0.01
    normalize_rewards: bool = False
    save_interval: int = 500


@register_algo_config("ppo", "dppo-square")
@dataclasses.dataclass
class PPODPPOSquareConfig(PPOConfig):
    """Fine-tuning a Gaussian policy on robomimic's Square, as the DPPO paper does (Ren et al. 2024, appendix).

    For a policy that can do the task already: a small step, a narrow interval, and a critic that learns first.
    """

    global_steps: int | None = 4_000_000
    learning_rate: float = 1e-4
    critic_learning_rate: float | None = 1e-3
    anneal_learning_rate: bool = False
    adam_eps: float = 1e-8
    buffer_size: int = 20_000
    batch_size: int = 10_000
    gamma: float = 0.999
    clip_coef: float = 0.01
    clip_vloss: bool = False
    max_grad_norm: float | None = None
    target_kl: float | None = 1.0
    reward_scaling_gamma: float | None = 0.99
    critic_warmup_iterations: int = 1
