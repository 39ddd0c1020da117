"""Configuration of the dummy algorithm."""

import dataclasses
import math

from plugrl_server.algorithm.base_algorithm import BaseAlgoConfig
from plugrl_server.algorithm.registration import register_algo_config
from plugrl_server.common.config_error import require


@register_algo_config("dummy")
@dataclasses.dataclass
class DummyAlgoConfig(BaseAlgoConfig):
    """Counts frames; never sleeps and never learns unless asked to."""

    global_steps: int | None = 1000
    learn_every: int | None = None
    """Frames between pretended learn steps; none: never."""
    save_interval: int | None = None
    """Frames (not learn steps) between checkpoints; none: only at the end."""
    infer_sleep_ms: float = 0.0
    """Pretended cost of an inference, in milliseconds."""
    learn_sleep_ms: float = 0.0
    """Pretended cost of a learn step, in milliseconds."""

    def check(self) -> None:
        """Refuse intervals below 1 and times below 0."""
        super().check()
        for name in ("learn_every", "save_interval"):
            if (value := getattr(self, name)) is not None:
                require(value >= 1, f"--algo.{name.replace('_', '-')} {value}: must be at least 1, or none for never.")
        for name in ("infer_sleep_ms", "learn_sleep_ms"):
            value = getattr(self, name)
            require(
                0 <= value < math.inf, f"--algo.{name.replace('_', '-')} {value}: must be a finite time of at least 0."
            )
