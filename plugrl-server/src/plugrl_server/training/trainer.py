"""Infer, record, learn, save, stop: a run's rules around one algorithm, without sockets, threads or asyncio.

One call at a time, except that a `concurrent` algorithm may infer and record while it learns.
"""

from __future__ import annotations

import copy
import dataclasses
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plugrl_server.algorithm.base_algorithm import BaseAlgorithm
from plugrl_server.algorithm.feedback_rows import NO_NODE, FeedbackRows, Node
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.common.torch_threads import settle
from plugrl_server.learning import trees
from plugrl_server.learning.episodes import has_figures, is_finished_episode
from plugrl_server.policy.base_policy import BasePolicy
from plugrl_server.training.accounting import Discard
from plugrl_server.training.symptoms.while_running import Symptoms


class AlgorithmError(Exception):
    """The algorithm or its policy failed; the text names the call, the error and the line, for the operator."""

    def __init__(self, call: str, problem: str) -> None:
        super().__init__(f"the algorithm's {call} failed: {problem}")

    @staticmethod
    def of(call: str, error: Exception) -> AlgorithmError:
        """Return the error that `call` ended with; raise it `from` the original to keep the traceback for the log."""
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        return AlgorithmError(call, f"{type(error).__name__}: {error}{place}")


class UnsoundPolicyError(AlgorithmError):
    """The policy's actions or its weights are NaN or infinite: they are not worth saving (lesson 3)."""


WEIGHTS_LOST = "the policy's weights are not finite any more"


@dataclasses.dataclass(slots=True, eq=False)
class Inference:
    """What a batch of n environments got.

    Attributes:
        action: [n, H, *action shape], finite.
        runtime_state: The policy's, a tree of leading n.
        train_state: The algorithm's, a tree of leading n.
        version: The policy version that acted.
    """

    action: np.ndarray
    runtime_state: Any
    train_state: Any
    version: int


class Trainer:
    """Drives one algorithm.

    Args:
        algorithm: Built, with its optimizers, and restored where a run is resumed.
        save: Writes a checkpoint and returns its folder.
        on_learn: Told the global step and the metrics of each learn step that reports any, in the thread that learned.

    Attributes:
        version: Number of learn steps of this process, the tag of every action.
        saved: The last checkpoint written, or None.
        finished_episodes: Episodes that ended so far in this process.
        symptoms: What looks like a mistake in the algorithm.
    """

    def __init__(
        self,
        algorithm: BaseAlgorithm,
        *,
        save: Callable[[Checkpoint], Path],
        on_learn: Callable[[int, dict[str, float]], None] | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.version = 0
        self.saved: Path | None = None
        self.finished_episodes = 0
        self.symptoms = Symptoms()
        self._save = save
        self._on_learn = on_learn
        self._discarded_since_report, self._seconds_since_report = 0, 0.0
        self._saved_state: tuple[int, int] | None = None
        self._learning = False
        self._snapshot: Checkpoint | None = None

    @property
    def global_step(self) -> int:
        """Decisions counted so far."""
        return int(self.algorithm.global_step)

    @property
    def policy(self) -> Any:
        """The policy that acts."""
        return self.algorithm.policy

    @property
    def on_policy(self) -> bool:
        """Whether only frames of the current policy are stored (`BaseAlgorithm.on_policy`)."""
        return bool(self.algorithm.on_policy)

    @property
    def concurrent(self) -> bool:
        """Whether inference goes on while the algorithm learns (`BaseAlgorithm.concurrent`)."""
        return bool(self.algorithm.concurrent)

    # Acting ------------------------------------------------------------------------------------------------------

    def infer(self, obs: dict[str, Any], rows: int) -> Inference:
        """Choose action chunks for `rows` environments.

        Raises:
            UnsoundPolicyError: An action is NaN or infinite.
            AlgorithmError: `infer` or `derive_train_state` failed.
        """
        settle()
        version = self.version
        self.symptoms.learns_in_a_row = 0
        try:
            action, runtime_state = self.algorithm.infer(obs)
            train_state = self.algorithm.derive_train_state(runtime_state)
        except Exception as error:
            raise AlgorithmError.of("infer", error) from error
        action = np.asarray(action)
        if action.ndim < 2 or action.shape[0] != rows:
            raise AlgorithmError("infer", f"expected actions [n={rows}, H, ...], got shape {list(action.shape)}")
        if action.dtype.kind == "f" and not all_finite(action):
            raise UnsoundPolicyError("infer", "the policy's actions are not finite")
        return Inference(action, runtime_state, train_state, version)

    # Feedback ----------------------------------------------------------------------------------------------------

    def record(
        self, rows: FeedbackRows, versions: np.ndarray | int, finite: np.ndarray | None = None
    ) -> dict[Discard, int]:
        """Store the rows that may be stored, in order, and hand the others to `discard_feedback`.

        On-policy, a row is stored only if the current version acted and `should_learn()` is false. A row with a NaN or
        an infinite number is never stored. `rows.nodes` holds every env's new node afterwards.

        Args:
            rows: m transitions in arrival order.
            versions: The policy versions that acted, i8[m], or one for all.
            finite: Which rows have only finite numbers, b1[m]; None where all have.

        Returns:
            How many rows were discarded, by reason; empty when all were stored.

        Raises:
            AlgorithmError: `feedback` or `discard_feedback` failed.
        """
        storable = self._storable(len(rows), versions, finite)
        offered = rows if storable is None else _pick(rows, np.flatnonzero(storable))
        taken = self._offer(offered) if len(offered) else 0
        self._note_finished(offered.info, offered.next_terminated[:taken], offered.next_truncated[:taken])
        if taken == len(rows):
            return {}
        stored = np.zeros(len(rows), np.bool_)
        stored[np.arange(taken) if storable is None else np.flatnonzero(storable)[:taken]] = True
        _set_nodes(rows, stored, offered.nodes[:taken])
        rest = ~stored
        infos = [rows.info[i] for i in np.flatnonzero(rest).tolist()]
        self.discard(infos, rows.next_terminated[rest], rows.next_truncated[rest])
        not_finite = 0 if finite is None else len(rows) - int(finite.sum())
        reasons = {
            Discard.NOT_FINITE: not_finite,
            Discard.STALE: len(rows) - len(offered) - not_finite,
            Discard.LEARNING: len(offered) - taken,
        }
        return {reason: count for reason, count in reasons.items() if count}

    def discard(self, infos: Sequence[dict[str, Any]], terminated: np.ndarray, truncated: np.ndarray) -> None:
        """Hand m rows that are not stored to `discard_feedback`, for the figures of the episodes they end.

        Raises:
            AlgorithmError: `discard_feedback` failed.
        """
        self._discarded_since_report += len(infos)
        recorded = self.algorithm.episodes.recorded
        try:
            for i, info in enumerate(infos):
                self.algorithm.discard_feedback(
                    info=info, next_terminated=bool(terminated[i]), next_truncated=bool(truncated[i])
                )
        except Exception as error:
            raise AlgorithmError.of("discard_feedback", error) from error
        self._note_finished(infos, terminated, truncated, recorded)

    def drain_logs(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the metrics that `feedback` returned since the last call, each with its global step."""
        return self.algorithm.drain_logs()

    def _offer(self, rows: FeedbackRows) -> int:
        """Offer rows to the algorithm and return how many leading ones it took."""
        try:
            if self.on_policy:
                return 0 if self.algorithm.should_learn() else self.algorithm.feedback_rows(rows)
            self.symptoms.learns_in_a_row = 0  # many clients' messages come one by one, each with a learn step after it
            taken = self.algorithm.feedback_rows(rows)
            while taken < len(rows):
                rest = rows.tail(taken)
                more = self.algorithm.feedback_rows(rest)
                if not more:
                    break
                rows.nodes[taken : taken + more] = rest.nodes[:more]
                taken += more
            return taken
        except Exception as error:
            raise AlgorithmError.of("feedback", error) from error

    def _storable(self, rows: int, versions: np.ndarray | int, finite: np.ndarray | None) -> np.ndarray | None:
        """Return which rows may be stored, b1[m]; None for all."""
        fresh = versions == self.version if self.algorithm.on_policy else True
        if isinstance(fresh, np.ndarray):
            storable = fresh if finite is None else fresh & finite
            return None if storable.all() else storable
        return finite if fresh else np.zeros(rows, np.bool_)

    def _note_finished(
        self,
        infos: Sequence[dict[str, Any]],
        terminated: np.ndarray,
        truncated: np.ndarray,
        recorded_before: int | None = None,
    ) -> None:
        """Count the episodes that ended in some rows; for discarded rows, `recorded_before` their call."""
        if b"\1" in terminated.tobytes() or b"\1" in truncated.tobytes():
            done = [infos[i] for i in np.flatnonzero(terminated | truncated).tolist()]
            ended = sum(map(is_finished_episode, done))
            self.finished_episodes += ended
            self.algorithm.note_finished_episodes(ended)
            told, recorded = sum(map(has_figures, done)), self.algorithm.episodes.recorded
            if recorded_before is None:
                self.symptoms.stored_episodes(told, recorded)
            else:
                self.symptoms.discarded_episodes(told, recorded - recorded_before)

    # Turns -------------------------------------------------------------------------------------------------------

    def should_learn(self) -> bool:
        """Ask the algorithm whether to learn now."""
        return self._ask("should_learn")

    def should_save(self) -> bool:
        """Ask the algorithm whether to save now."""
        return self._ask("should_save")

    def should_stop(self) -> bool:
        """Ask the algorithm whether the run is over."""
        return self._ask("should_stop")

    def _ask(self, question: str) -> bool:
        try:
            return bool(getattr(self.algorithm, question)())
        except Exception as error:
            raise AlgorithmError.of(question, error) from error

    def learn(self) -> tuple[int, dict[str, float]]:
        """Run one learn step and return its global step and metrics; the policy version goes up by one.

        The metrics are empty, and nobody is told, where the algorithm reports nothing (`learn_impl`); what is counted
        here then goes into the next report.

        Raises:
            AlgorithmError: It failed, or (on-policy) left weights that are NaN or infinite; `save` then writes the
                state from before the step.
        """
        settle()
        self._snapshot = self._copy_of_state() if self.on_policy else None
        self._learning = True
        started = time.perf_counter()
        try:
            self.algorithm.pre_learn()
            global_step, metrics = self.algorithm.learn()
            self.algorithm.post_learn()
        except Exception as error:
            raise AlgorithmError.of("learn", error) from error
        if self.on_policy and not self._weights_are_finite():  # off-policy, steps are too many: `save` looks
            raise AlgorithmError("learn", WEIGHTS_LOST)
        self.version += 1
        self._learning = False
        self._snapshot = None
        seconds = time.perf_counter() - started
        self._seconds_since_report += seconds
        if self.concurrent:
            self.symptoms.learns_in_a_row = 0  # it need not stop learning to be inferred from
        self.symptoms.learned(seconds, self.algorithm.episodes.recorded)
        if metrics is None:
            return global_step, {}
        ours = {
            "server/discarded_frames": float(self._discarded_since_report),
            "server/policy_version": float(self.version),
            "time/learn_seconds": self._seconds_since_report,
        }
        self._discarded_since_report, self._seconds_since_report = 0, 0.0
        told = {**ours, **metrics}
        if self._on_learn is not None:
            self._on_learn(global_step, told)
        return global_step, told

    # Saving ------------------------------------------------------------------------------------------------------

    def save(self) -> Path | None:
        """Write the last complete state: the current one, or while a learn step runs or has failed the one before it.

        An off-policy algorithm keeps no copy of the state before a learn step (that would copy its replay buffer at
        every step): nothing is written for it then, and the last checkpoint stands.

        Returns:
            The checkpoint's folder, None when there is nothing new to write.

        Raises:
            UnsoundPolicyError: The weights are NaN or infinite; what was written before stands.
            AlgorithmError: `create_checkpoint` failed.
            CheckpointError: The checkpoint could not be written.
        """
        checkpoint = self._snapshot
        if checkpoint is None:
            if self._learning or self._saved_state == (self.global_step, self.version):
                return None
            checkpoint = self._checkpoint()
            if not self._weights_are_finite():
                raise UnsoundPolicyError("learn", WEIGHTS_LOST)
            self.symptoms.saved(wants_more=self.should_save())
        state = (int(checkpoint.step), self.version)
        if state == self._saved_state:
            return None
        self.saved = self._save(checkpoint)
        self._saved_state = state
        return self.saved

    def close(self) -> None:
        """Let the algorithm release what outlives it; nothing else is asked of it afterwards."""
        self.algorithm.close()

    def _weights_are_finite(self) -> bool:
        return not isinstance(self.policy, BasePolicy) or self.policy.weights_are_finite()

    def _checkpoint(self) -> Checkpoint:
        try:
            return self.algorithm.create_checkpoint()
        except Exception as error:
            raise AlgorithmError.of("create_checkpoint", error) from error

    def _copy_of_state(self) -> Checkpoint:
        # create_checkpoint marks the state as saved, so that should_save() turns false; a copy in memory is not a save.
        attributes = dict(vars(self.algorithm))
        checkpoint = copy.deepcopy(self._checkpoint())
        vars(self.algorithm).update(attributes)
        return checkpoint


def all_finite(numbers: np.ndarray) -> bool:
    """Return whether a float array has no NaN and no infinity."""
    return b"\0" not in np.isfinite(numbers).tobytes()  # half the price of all() for the small arrays of an exchange


def _pick(rows: FeedbackRows, index: np.ndarray) -> FeedbackRows:
    """Return some rows of a feedback, arrays copied."""
    return FeedbackRows(
        obs=trees.take(rows.obs, index),
        runtime_state=trees.take(rows.runtime_state, index),
        train_state=trees.take(rows.train_state, index),
        terminated=rows.terminated[index],
        truncated=rows.truncated[index],
        next_obs=trees.take(rows.next_obs, index),
        reward=rows.reward[index],
        info=[rows.info[i] for i in index],
        next_terminated=rows.next_terminated[index],
        next_truncated=rows.next_truncated[index],
        nodes=[rows.nodes[i] for i in index],
        client=rows.client,
        env_indices=None if rows.env_indices is None else rows.env_indices[index],
    )


def _set_nodes(rows: FeedbackRows, stored: np.ndarray, nodes: Sequence[Node]) -> None:
    """Write the nodes of the stored rows; the others start a new chain."""
    rows.nodes[:] = [NO_NODE] * len(rows)
    for i, node in zip(np.flatnonzero(stored), nodes, strict=True):
        rows.nodes[i] = node
