"""Configuration of PPO and its presets."""

import dataclasses
from typing import ClassVar

from plugrl_server.algorithm.base_algorithm import BaseAlgoConfig
from plugrl_server.algorithm.registration import register_algo_config
from plugrl_server.common.config_error import require


@register_algo_config("ppo")
@dataclasses.dataclass
class PPOConfig(BaseAlgoConfig):
    """PPO with the clipped objective; the defaults are those of CleanRL's continuous-action file."""

    policies: ClassVar[tuple[str, ...] | None] = ("gaussian-policy", "categorical-policy", "dppo-gaussian-policy")

    global_steps: int | None = 150_000
    learning_rate: float = 3e-4
    critic_learning_rate: float | None = None
    """Learning rate of the critic; default: the same as the actor's."""
    anneal_learning_rate: bool = True
    """Lower the learning rates linearly to 0 over the run."""
    adam_eps: float = 1e-5
    buffer_size: int = 2048
    """Frames of one iteration, over all environments."""
    batch_size: int = 64
    """Frames of one mini-batch."""
    update_epochs: int = 10
    """Passes over the frames of an iteration."""
    gamma: float = 0.99
    """Discount per decision (action chunk)."""
    gae_lambda: float = 0.95
    clip_coef: float = 0.2
    """Half width of the interval around 1 in which the probability ratio counts."""
    clip_vloss: bool = True
    """Clip the change of the value by clip_coef as well."""
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float | None = 0.5
    """Norm the gradient is clipped to; none: not clipped."""
    target_kl: float | None = None
    """Skip the remaining epochs of an iteration once its KL estimate is above this; none: never."""
    normalize_advantages: bool = True
    """Normalise advantages in each mini-batch of more than one frame."""
    normalize_rewards: bool = True
    """Divide rewards by the standard deviation of the discounted return, clipped to +-10."""
    reward_scaling_gamma: float | None = None
    """Discount of the return that rewards are scaled by; default: gamma."""
    critic_warmup_iterations: int = 0
    """First iterations in which only the critic learns."""
    save_interval: int = 10
    """Iterations between checkpoints."""

    def check(self) -> None:
        """Refuse what can never learn or is out of range."""
        super().check()
        self._check_sizes()
        self._check_ranges()

    def _check_sizes(self) -> None:
        for name in ("buffer_size", "batch_size", "update_epochs", "save_interval"):
            value = getattr(self, name)
            require(value >= 1, f"--algo.{name.replace('_', '-')} {value}: must be at least 1.")
        require(
            self.critic_warmup_iterations >= 0,
            f"--algo.critic-warmup-iterations {self.critic_warmup_iterations}: must not be negative.",
        )
        require(
            self.batch_size <= self.buffer_size,
            f"--algo.batch-size {self.batch_size} is larger than --algo.buffer-size {self.buffer_size}: "
            f"a mini-batch is drawn from the buffer.",
        )
        require(
            self.global_steps is None or self.buffer_size <= self.global_steps,
            f"--algo.buffer-size {self.buffer_size} is larger than --algo.global-steps {self.global_steps}: "
            f"the run would end before its first learn step.",
        )
        require(
            self.global_steps is not None or not self.anneal_learning_rate,
            "--algo.anneal-learning-rate needs a run length: --algo.global-steps N, or --algo.no-anneal-learning-rate.",
        )

    def _check_ranges(self) -> None:
        for name in ("learning_rate", "critic_learning_rate", "adam_eps", "clip_coef", "max_grad_norm", "target_kl"):
            if (value := getattr(self, name)) is not None:
                require(
                    0 < value < float("inf"),
                    f"--algo.{name.replace('_', '-')} {value}: must be a finite number above 0.",
                )
        for name in ("gamma", "gae_lambda", "reward_scaling_gamma"):
            if (value := getattr(self, name)) is not None:
                require(0 <= value <= 1, f"--algo.{name.replace('_', '-')} {value}: must lie between 0 and 1.")
        for name in ("ent_coef", "vf_coef"):
            value = getattr(self, name)
            require(
                0 <= value < float("inf"),
                f"--algo.{name.replace('_', '-')} {value}: must be a finite number of at least 0.",
            )


@register_algo_config("ppo", "pendulum")
@dataclasses.dataclass
class PPOPendulumConfig(PPOConfig):
    """Pendulum-v1 near the public RL zoo's settings: short sight, a large constant step, many frames.

    Mini-batches are larger than the zoo's 64, with which exploration often collapsed too early here.
    """

    global_steps: int | None = 102_400
    learning_rate: float = 1e-3
    anneal_learning_rate: bool = False
    buffer_size: int = 4096
    batch_size: int = 256
    gamma: float = 0.9
    gae_lambda: float = 0.9
    clip_vloss: bool = False


@register_algo_config("ppo", "discrete")
@dataclasses.dataclass
class PPODiscreteConfig(PPOConfig):
    """CartPole-v1 and its like: the defaults, over a shorter run."""

    global_steps: int | None = 100_000
