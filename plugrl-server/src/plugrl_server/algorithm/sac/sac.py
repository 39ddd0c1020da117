"""SAC as the server runs it: acting, storing, which updates are due, state. The mathematics is in `sac_learner`."""

from functools import partial
from typing import Any, cast

import numpy as np

from plugrl_server.algorithm.buffered import BufferedAlgorithm
from plugrl_server.algorithm.collectives import Collectives
from plugrl_server.algorithm.concurrent.remote_learner import RemoteLearner
from plugrl_server.algorithm.feedback_rows import FeedbackRows, Node
from plugrl_server.algorithm.registration import register_algo
from plugrl_server.algorithm.sac.sac_config import SACConfig
from plugrl_server.algorithm.sac.sac_learner import SACLearner, Update, build_learner
from plugrl_server.common.checkpoint_manager import Checkpoint, loading
from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning.rng import load_rng_state, rng_state
from plugrl_server.learning.trees import Tree
from plugrl_server.policy.sac.sac_policy import SACPolicy
from plugrl_server.policy.state import PolicyRuntimeState, PolicyTrainState

MAX_UPDATES = 256
"""Updates of one learn step at most, so that a run can be stopped in between however large a message was."""

LONGEST_WAIT = 5.0
"""Seconds that one learn step waits at most for the learner's own process, for the same reason."""


@register_algo("sac")
class SAC(BufferedAlgorithm):
    """Soft actor-critic on a replay buffer.

    Every stored frame beyond the first `learning_starts` makes `updates_per_step` updates due, whoever sent it; a learn
    step takes those that are due. Learn steps are as frequent as messages, so most report nothing, and one in about
    `report_interval` updates reports for all since the last.

    Attributes:
        due: Updates due, a number with a fraction where `updates_per_step` is none.
        learner: Takes frames and does the updates: here, or with `concurrent` in a process of its own, which does the
            same ones in the same order, later.
    """

    on_policy = False

    config: SACConfig
    policy: SACPolicy

    def __init__(self, config: SACConfig, policy: Any) -> None:
        if not isinstance(policy, SACPolicy):
            raise ConfigError(f"sac needs sac-policy, got {type(policy).__name__}.")
        config.check()
        super().__init__(config=config, policy=policy)
        self.due = 0.0
        self.reported_updates = 0
        self.saved_step = 0
        self.learner: SACLearner | RemoteLearner = SACLearner(config, policy)

    def init_optimizers(self) -> None:
        """Start the learner's own process, with `concurrent`."""
        if self.config.concurrent and isinstance(self.learner, SACLearner):
            build = partial(build_learner, self.config, type(self.policy), self.policy.config)
            self.learner = RemoteLearner(self.learner, build)

    def close(self) -> None:
        """End the learner's own process."""
        if isinstance(self.learner, RemoteLearner):
            self.learner.close()

    # Acting and storing ------------------------------------------------------------------------------------------

    def infer(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Sample a chunk for each environment: of the policy, or uniformly before `learning_starts`."""
        if self.global_step < self.config.learning_starts:
            return self.policy.uniform_action_and_runtime_state(len(obs["text"]))
        return self.policy.get_action_and_runtime_state(obs)

    def _store(self, rows: FeedbackRows) -> None:
        super()._store(rows)
        counted = min(len(rows), max(0, self.global_step - self.config.learning_starts))
        self.due += counted * self.config.updates_per_step
        if isinstance(self.learner, RemoteLearner):
            self._order(self.learner)

    def _add(self, train_state: PolicyTrainState, **frames: Tree) -> list[Node]:
        return self.learner.add(action=train_state, **frames)

    # Learning ----------------------------------------------------------------------------------------------------

    def learn_impl(self) -> tuple[int, dict[str, Any] | None]:
        """Take the updates that are due, or meet who takes them; the metrics are None unless a report is due."""
        if isinstance(self.learner, RemoteLearner):
            self._order(self.learner)
            meet = self.learner.catch_up if self._has_all_frames() else self.learner.meet
            meet(LONGEST_WAIT)
        else:
            updates = min(int(self.due), MAX_UPDATES)
            self._take(updates)
            self.due -= updates
        if not self._report_is_due():
            return self.global_step, None
        self.reported_updates = self.learner.updates
        return self.global_step, {**self.learner.metrics(), "losses/updates": float(self.learner.updates)}

    def _order(self, learner: RemoteLearner) -> None:
        """Have the updates that are due taken by the learner's own process."""
        if updates := int(self.due):
            learner.update(updates)
            self.due -= updates

    def _take(self, updates: int) -> None:
        if self.world_size == 1:
            self.learner.update(updates)
            return
        for _ in range(updates):
            self.learn_together(cast("SACLearner", self.learner).drawn())

    def _report_is_due(self) -> bool:
        since = self.learner.updates - self.reported_updates
        return since >= self.config.report_interval or (since > 0 and self._has_all_frames() and not self._owes())

    # With several learners ---------------------------------------------------------------------------------------

    def join(self, collectives: Collectives) -> None:
        """Become one of several learners; `concurrent`, which could not, is refused beside them."""
        super().join(collectives)
        cast("SACLearner", self.learner).collectives = collectives

    def distributed_modules(self) -> dict[str, Any]:
        """Return the policy, the optimizers and the targets, of which every learner has a copy."""
        learner = cast("SACLearner", self.learner)
        return {
            "policy": self.policy,
            "actor": learner.actor_optimizer,
            "critic": learner.critic_optimizer,
            "alpha": learner.alpha_optimizer,
            "targets": learner.targets,
        }

    def learn_batch(self, batch: Update) -> dict[str, Any]:
        """Take one update of rank 0's choice; its metrics are added up and wait there to be reported."""
        learner = cast("SACLearner", self.learner)
        if self.rank:
            learner.follow(batch)
        learner.learn_from(batch.batch)
        return {}

    # Scheduling and state ----------------------------------------------------------------------------------------

    def should_learn(self) -> bool:
        """Return whether an update is due, or the learner's own process has news or must be waited for."""
        if isinstance(self.learner, RemoteLearner):
            unreported = self._owes() or self.learner.updates > self.reported_updates
            return self.learner.has_news or (self._has_all_frames() and unreported)
        return self._owes()

    def _owes(self) -> bool:
        """Return whether an update is due that is not taken yet."""
        return self.due >= 1 or (isinstance(self.learner, RemoteLearner) and self.learner.behind > 0)

    def should_save(self) -> bool:
        """Return whether `save_interval` frames have come since the last checkpoint."""
        return self.global_step - self.saved_step >= self.config.save_interval

    def should_stop(self) -> bool:
        """Return whether `global_steps` frames are stored, and the updates due for them are done."""
        return self._has_all_frames() and not self.should_learn()

    def _has_all_frames(self) -> bool:
        steps = self.config.global_steps
        return steps is not None and self.global_step >= steps

    def create_checkpoint(self) -> Checkpoint:
        """Return weights, optimizers, the replay buffer, generators and counters."""
        self.saved_step = self.global_step
        meta = {  # first the learner's state: one of another process brings that of the policy and the optimizers along
            "due": self.due,
            "reported_updates": self.reported_updates,
            "saved_step": self.saved_step,
            "learner": self.learner.state_dict(),
            "rng": rng_state(self.policy),
        }
        model, optimizer = self.policy.state_dict(), self.learner.optimizer_state()
        return Checkpoint(step=self.global_step, model=model, optimizer=optimizer, meta=meta)

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Restore what `create_checkpoint` returned.

        Raises:
            CheckpointError: It is the state of another policy or buffer, or lacks a part; the text says which.
        """
        meta = checkpoint.meta
        with loading(checkpoint):
            self.policy.load_state_dict(checkpoint.model)
            self.learner.load_optimizer_state(checkpoint.optimizer)
            self.learner.load_state_dict(meta["learner"])
            load_rng_state(meta["rng"], self.policy)
            self.saved_step = meta["saved_step"]
            self.due, self.reported_updates = meta["due"], meta["reported_updates"]
        self.global_step = checkpoint.step
