"""Configuration of SAC and its presets."""

import dataclasses
import math
from typing import ClassVar

from plugrl_server.algorithm.base_algorithm import BaseAlgoConfig
from plugrl_server.algorithm.registration import register_algo_config
from plugrl_server.common.config_error import require


@register_algo_config("sac")
@dataclasses.dataclass
class SACConfig(BaseAlgoConfig):
    """SAC with a tuned temperature; the defaults are those of CleanRL's continuous-action file."""

    policies: ClassVar[tuple[str, ...] | None] = ("sac-policy",)

    global_steps: int | None = 1_000_000
    learning_rate: float = 3e-4
    critic_learning_rate: float = 1e-3
    """Learning rate of the critics and of the temperature."""
    buffer_size: int = 1_000_000
    """Frames kept in the replay buffer; memory grows as it fills."""
    batch_size: int = 256
    """Frames of one update."""
    learning_starts: int = 5000
    """Frames of uniformly random actions before the first update."""
    updates_per_step: float = 1.0
    """Updates for each frame that is stored, whatever the number of environments and clients."""
    policy_frequency: int = 2
    """Updates between those that move the actor; each of these moves it as often as was left out."""
    gamma: float = 0.99
    """Discount per decision (action chunk)."""
    tau: float = 0.005
    """Part of the way that the targets move to the critics at each update."""
    autotune: bool = True
    """Tune the temperature so that the policy's entropy becomes the target."""
    alpha: float = 1.0
    """The temperature; where it is tuned, its first value."""
    target_entropy: float | None = None
    """Entropy of a chunk that the temperature is tuned for; default: minus the numbers in a chunk."""
    report_interval: int = 1000
    """Updates between rows of metrics."""
    concurrent: bool = False
    """Learn in a process of its own, while this one goes on acting with the newest weights it has."""
    save_interval: int = 50_000
    """Frames (not learn steps) between checkpoints, which hold the replay buffer."""

    def check(self) -> None:
        """Refuse what can never learn or is out of range."""
        super().check()
        self._check_ranges()
        self._check_sizes()

    def _check_ranges(self) -> None:
        for name in ("learning_rate", "critic_learning_rate", "updates_per_step", "alpha"):
            value = getattr(self, name)
            require(0 < value < math.inf, f"--algo.{name.replace('_', '-')} {value}: must be a finite number above 0.")
        require(0 <= self.gamma <= 1, f"--algo.gamma {self.gamma}: must lie between 0 and 1.")
        require(0 < self.tau <= 1, f"--algo.tau {self.tau}: must be above 0 and at most 1.")
        require(
            self.target_entropy is None or math.isfinite(self.target_entropy),
            f"--algo.target-entropy {self.target_entropy}: must be a finite number.",
        )

    def _check_sizes(self) -> None:
        for name in ("buffer_size", "batch_size", "policy_frequency", "report_interval", "save_interval"):
            value = getattr(self, name)
            require(value >= 1, f"--algo.{name.replace('_', '-')} {value}: must be at least 1.")
        require(self.learning_starts >= 1, f"--algo.learning-starts {self.learning_starts}: must be at least 1.")
        require(
            self.batch_size <= self.buffer_size,
            f"--algo.batch-size {self.batch_size} is larger than --algo.buffer-size {self.buffer_size}: "
            f"a batch is drawn from the buffer.",
        )
        require(
            self.global_steps is None or self.learning_starts < self.global_steps,
            f"--algo.learning-starts {self.learning_starts} is not below --algo.global-steps {self.global_steps}: "
            f"the run would end before its first update.",
        )
        steps = None if self.global_steps is None else self.global_steps - self.learning_starts
        require(
            steps is None or steps * self.updates_per_step >= 1,
            f"--algo.updates-per-step {self.updates_per_step}: no update is due in the {steps} steps between "
            f"--algo.learning-starts and --algo.global-steps.",
        )


@register_algo_config("sac", "pendulum")
@dataclasses.dataclass
class SACPendulumConfig(SACConfig):
    """Pendulum-v1 and its like: a short run that begins to learn after 1000 frames."""

    global_steps: int | None = 15_000
    learning_starts: int = 1000
    buffer_size: int = 50_000
    report_interval: int = 500
