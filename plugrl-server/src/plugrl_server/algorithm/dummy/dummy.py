"""An algorithm that counts frames and learns nothing: smoke tests, benchmarks, and pretended slowness."""

import time
from typing import Any

import numpy as np

from plugrl_server.algorithm.base_algorithm import BaseAlgorithm, FeedbackRows, Node
from plugrl_server.algorithm.dummy.dummy_config import DummyAlgoConfig
from plugrl_server.algorithm.registration import register_algo
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.policy.state import PolicyRuntimeState


@register_algo("dummy")
class DummyAlgorithm(BaseAlgorithm):
    """Runs on any policy. Frames are counted and dropped; a learn step, when asked for, changes no weight."""

    def __init__(self, config: DummyAlgoConfig, policy: Any) -> None:
        super().__init__(config=config, policy=policy)
        self.learned_at = 0
        self.saved_at = 0

    def infer(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Ask the policy, after the pretended cost."""
        if self.config.infer_sleep_ms:
            time.sleep(self.config.infer_sleep_ms / 1000)
        action, runtime_state = self.policy.get_action_and_runtime_state(obs)
        return action, runtime_state

    def feedback(
        self, *, info: dict[str, Any], next_terminated: bool, next_truncated: bool, **_: Any
    ) -> tuple[Node, int, dict[str, Any]]:
        """Count one frame."""
        self.record_finished_episode(info, next_terminated, next_truncated)
        self.global_step += 1
        return (self.global_step, "dummy"), self.global_step, {}

    def feedback_rows(self, rows: FeedbackRows) -> int:
        """Count the rows of a message, up to the next learn step."""
        taken = len(rows)
        if self.config.learn_every is not None:
            taken = min(taken, max(0, self.learned_at + self.config.learn_every - self.global_step))
        rows.nodes[:taken] = [(self.global_step + i + 1, "dummy") for i in range(taken)]
        done = rows.next_terminated[:taken] | rows.next_truncated[:taken]
        for i in np.flatnonzero(done).tolist():
            self.record_finished_episode(rows.info[i], True, False)
        self.global_step += taken
        return taken

    def learn_impl(self) -> tuple[int, dict[str, Any]]:
        """Take the pretended time of a learn step."""
        if self.config.learn_sleep_ms:
            time.sleep(self.config.learn_sleep_ms / 1000)
        self.learned_at = self.global_step
        return self.global_step, {}

    def should_learn(self) -> bool:
        """Return whether `learn_every` frames have come since the last learn step."""
        every = self.config.learn_every
        return every is not None and self.global_step - self.learned_at >= every

    def should_save(self) -> bool:
        """Return whether `save_interval` frames have come since the last checkpoint."""
        interval = self.config.save_interval
        return interval is not None and self.global_step - self.saved_at >= interval

    def should_stop(self) -> bool:
        """Return whether `global_steps` frames have come."""
        return self.config.global_steps is not None and self.global_step >= self.config.global_steps

    def create_checkpoint(self) -> Checkpoint:
        """Return the policy's weights, where it has any, and the counters."""
        self.saved_at = self.global_step
        model = self.policy.state_dict() if hasattr(self.policy, "state_dict") else None
        meta = {"learned_at": self.learned_at, "saved_at": self.saved_at, "rng": self.policy.rng_state()}
        return Checkpoint(step=self.global_step, model=model, optimizer=None, meta=meta)

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Restore the policy's weights, where it has any, and the counters."""
        self.global_step = checkpoint.step
        self.learned_at = checkpoint.meta["learned_at"]
        self.saved_at = checkpoint.meta["saved_at"]
        if checkpoint.model is not None:
            self.policy.load_state_dict(checkpoint.model)
        if checkpoint.meta["rng"] is not None:
            self.policy.load_rng_state(checkpoint.meta["rng"])
