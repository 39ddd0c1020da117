"""The part of their configuration that on-policy algorithms share, and its checks."""

import dataclasses

from plugrl_server.algorithm.base_algorithm import BaseAlgoConfig
from plugrl_server.common.config_error import require


@dataclasses.dataclass
class OnPolicyConfig(BaseAlgoConfig):
    """An actor and a critic that learn from a buffer of frames of the current policy."""

    global_steps: int | None = 150_000
    learning_rate: float = 3e-4
    """Learning rate of the actor."""
    critic_learning_rate: float | None = None
    """Learning rate of the critic; default: the same as the actor's."""
    anneal_learning_rate: bool = False
    """Lower the learning rates linearly to 0 over the run."""
    buffer_size: int = 2048
    """Frames of one iteration, over all environments."""
    batch_size: int = 64
    """Frames of one mini-batch."""
    update_epochs: int = 10
    """Passes over the frames of an iteration."""
    gamma: float = 0.99
    """Discount per decision (action chunk)."""
    gae_lambda: float = 0.95
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
    reward_scale: float = 1.0
    """What rewards are multiplied by, after they were normalised."""
    critic_warmup_iterations: int = 0
    """First iterations in which only the critic learns."""
    save_interval: int = 10
    """Iterations (learn steps, not frames) between checkpoints."""

    def check(self) -> None:
        """Refuse what can never learn or is out of range."""
        super().check()
        for name in ("buffer_size", "batch_size", "update_epochs", "save_interval"):
            require_at_least(self, name, 1)
        require_at_least(self, "critic_warmup_iterations", 0)
        for name in ("learning_rate", "critic_learning_rate", "max_grad_norm", "target_kl", "reward_scale"):
            require_positive(self, name)
        for name in ("gamma", "gae_lambda", "reward_scaling_gamma"):
            require_fraction(self, name)
        self._check_that_it_can_learn()

    def _check_that_it_can_learn(self) -> None:
        require(
            self.batch_size <= self.buffer_size,
            f"--algo.batch-size {self.batch_size} is larger than --algo.buffer-size {self.buffer_size}: "
            f"a mini-batch is drawn from the buffer.",
        )
        if self.global_steps is None:
            require(
                not self.anneal_learning_rate,
                "--algo.anneal-learning-rate needs a run length: --algo.global-steps N, or "
                "--algo.no-anneal-learning-rate.",
            )
            return
        require(
            self.buffer_size <= self.global_steps,
            f"--algo.buffer-size {self.buffer_size} is larger than --algo.global-steps {self.global_steps}: "
            f"the run would end before its first learn step.",
        )
        iterations = self.global_steps // self.buffer_size  # a part of a buffer at the end is not learned from
        require(
            self.critic_warmup_iterations < iterations,
            f"--algo.critic-warmup-iterations {self.critic_warmup_iterations}: the run has {iterations} iterations "
            f"(--algo.global-steps {self.global_steps} over --algo.buffer-size {self.buffer_size}), "
            f"so the actor would never learn.",
        )


def flag(name: str) -> str:
    """Return the command-line flag of an algorithm's field."""
    return f"--algo.{name.replace('_', '-')}"


def require_at_least(config: BaseAlgoConfig, name: str, least: int) -> None:
    """Refuse a field below `least`; None passes."""
    value = getattr(config, name)
    require(value is None or value >= least, f"{flag(name)} {value}: must be at least {least}.")


def require_positive(config: BaseAlgoConfig, name: str) -> None:
    """Refuse a field that is no finite number above 0; None passes."""
    value = getattr(config, name)
    require(value is None or 0 < value < float("inf"), f"{flag(name)} {value}: must be a finite number above 0.")


def require_not_negative(config: BaseAlgoConfig, name: str) -> None:
    """Refuse a field that is no finite number of at least 0; None passes."""
    value = getattr(config, name)
    text = f"{flag(name)} {value}: must be a finite number of at least 0."
    require(value is None or 0 <= value < float("inf"), text)


def require_fraction(config: BaseAlgoConfig, name: str) -> None:
    """Refuse a field outside [0, 1]; None passes."""
    value = getattr(config, name)
    require(value is None or 0 <= value <= 1, f"{flag(name)} {value}: must lie between 0 and 1.")
