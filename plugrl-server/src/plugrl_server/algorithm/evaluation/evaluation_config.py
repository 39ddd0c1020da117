"""Configuration of an evaluation."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from plugrl_server.algorithm.base_algorithm import BaseAlgoConfig
from plugrl_server.algorithm.evaluation.trained_policy import find_trained_policy, require_weights
from plugrl_server.algorithm.registration import register_algo_config
from plugrl_server.common.config_error import require
from plugrl_server.record.run_record import RunRecord


@register_algo_config("eval")
@dataclasses.dataclass
class EvaluationConfig(BaseAlgoConfig):
    """Measures a trained policy over a number of episodes; learns nothing."""

    policy_checkpoint_path: Path | None = None
    """A run folder (its latest step), or one step of it; none: for a policy that brings its own weights."""
    num_episodes: int = 10
    """Episodes to count; every environment does an equal share of them."""
    deterministic: bool = True
    """Act without noise."""
    bootstrap_seed: int = 0
    """Seed of the resampling behind the intervals."""
    save_interval: int | None = None
    """Episodes (not frames) between checkpoints, from which --resume goes on; none: only at the end."""

    def check(self) -> None:
        """Refuse counts below 1."""
        super().check()
        require(self.num_episodes >= 1, f"--algo.num-episodes {self.num_episodes}: must be at least 1.")
        require(self.bootstrap_seed >= 0, f"--algo.bootstrap-seed {self.bootstrap_seed}: must be at least 0.")
        if (interval := self.save_interval) is not None:
            require(interval >= 1, f"--algo.save-interval {interval}: must be at least 1, or none for never.")

    def check_policy(self, uid: str, config: Any) -> None:
        """Refuse to measure weights that nobody trained."""
        require_weights("eval", self.policy_checkpoint_path, uid, config, "measuring random ones says nothing")

    def policy_record(self) -> RunRecord | None:
        """Return the record of the run whose policy is measured."""
        path = self.policy_checkpoint_path
        return None if path is None else find_trained_policy(path).record()
