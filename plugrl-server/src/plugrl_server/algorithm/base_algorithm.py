"""The contract between the server's loop and an algorithm, free of torch."""

import abc
import dataclasses
from typing import Any, ClassVar

import numpy as np

from plugrl_server.algorithm.feedback_rows import NO_NODE, Client, FeedbackRows, Node
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.common.config_error import require
from plugrl_server.learning.episodes import EpisodeMetrics, is_finished_episode
from plugrl_server.policy.state import PolicyRuntimeState, PolicyTrainState
from plugrl_server.record.results import Results
from plugrl_server.record.run_record import RunRecord

__all__ = ["NO_NODE", "BaseAlgoConfig", "BaseAlgorithm", "Client", "FeedbackRows", "Node"]


@dataclasses.dataclass
class BaseAlgoConfig:
    """Base of every algorithm configuration.

    Attributes:
        policies: uids of the policies it works with, None for any.
    """

    policies: ClassVar[tuple[str, ...] | None] = None

    global_steps: int | None = None
    """Length of the run in decisions (action chunks); none: until it is stopped."""

    def check(self) -> None:
        """Refuse a configuration that can never learn. Overrides call `super()`.

        Raises:
            ConfigError: The text names the flags and the numbers.
        """
        if self.global_steps is not None:
            require(self.global_steps >= 1, f"--algo.global-steps {self.global_steps}: must be at least 1, or none.")

    def check_policy(self, uid: str, config: Any) -> None:
        """Refuse a policy that this configuration cannot work with.

        Raises:
            ConfigError: The text names the flags.
        """

    def policy_record(self) -> RunRecord | None:
        """Return the run that trained the policy, where the algorithm takes one over: its configuration is kept.

        Raises:
            ConfigError: There is no such run; the text names the flag.
        """
        return None


class BaseAlgorithm(abc.ABC):
    """What the server calls, in this order, one call at a time.

    `infer` and `derive_train_state` for a batch of environments; then, for each finished chunk, `feedback` for the
    frames that are stored and `discard_feedback` for all others; `pre_learn`, `learn`, `post_learn` while
    `should_learn()`; `create_checkpoint` while `should_save()` (so both must make their condition false again); the
    run ends when `should_stop()`. Write `learn_impl`, not `learn`.

    `create_checkpoint` is only ever called between learn steps, and may be called right before one: when a learn step
    is interrupted, the server saves the checkpoint it took before. So it must be cheap, and what it returns must not
    change with later training: the server serialises or copies it before it lets the learn step begin.

    Attributes:
        on_policy: Frames reach `feedback` only when the current policy acted and `should_learn()` is false. Set it to
            False to learn from a replay buffer: every frame that has a step state is then stored.
        concurrent: The server may infer while `should_learn()` is true.
        config: The configuration.
        policy: The policy.
        global_step: Decisions counted so far.
        episodes: Figures of the episodes that ended since the last learn step.
    """

    on_policy: bool = True
    concurrent: bool = False

    def __init__(self, config: Any, policy: Any) -> None:
        self.config = config
        self.policy = policy
        self.global_step = 0
        self.episodes = EpisodeMetrics()
        self._logs: list[tuple[int, dict[str, Any]]] = []
        self._reported = True

    # Acting ------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def infer(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Choose chunks for a batch of n environments: actions [n, H, *action shape] and the policy's runtime state."""

    def derive_train_state(self, runtime_state: PolicyRuntimeState) -> PolicyTrainState:  # noqa: ARG002
        """Return what of a runtime state is kept for learning; comes back row by row as `feedback(train_state=...)`."""
        return None

    def example_train_state(self, n: int) -> PolicyTrainState:
        """Return a train state of n environments with the shapes and dtypes of real ones, for sizing buffers."""
        return self.derive_train_state(self.policy.fake_runtime_state(n))

    # Feedback ----------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def feedback(
        self,
        *,
        obs: dict[str, Any],
        runtime_state: PolicyRuntimeState,
        train_state: PolicyTrainState = None,
        terminated: bool,
        truncated: bool,
        next_obs: dict[str, Any],
        reward: float,
        info: dict[str, Any],
        next_terminated: bool,
        next_truncated: bool,
        prev_node: Node,
    ) -> tuple[Node, int, dict[str, Any]]:
        """Store one frame.

        Args:
            obs: The observation that was acted on; it and the next trees keep a leading axis of 1.
            runtime_state: The policy's state from `infer`.
            train_state: What `derive_train_state` made of it.
            terminated: Whether the previous frame of this environment terminated (this frame starts an episode).
            truncated: Whether the previous frame was truncated.
            next_obs: The observation after the chunk; on a done frame the final one of the episode.
            reward: Sum of the rewards over the chunk.
            info: This environment's own map.
            next_terminated: Whether this frame terminates the episode: bootstrap nothing.
            next_truncated: Whether this frame truncates the episode: bootstrap with the value of `next_obs`.
            prev_node: The node returned for the previous frame, `(-1, "")` at first and after a discarded frame.

        Returns:
            The node of this frame (slot, key), the global step, and metrics to log now (usually none).
        """

    def discard_feedback(self, *, info: dict[str, Any], next_terminated: bool, next_truncated: bool) -> None:
        """Take note of a frame that is not stored: the figures of a finished episode. Overrides call `super()`."""
        self.record_finished_episode(info, next_terminated, next_truncated)

    def feedback_rows(self, rows: FeedbackRows) -> int:
        """Store the rows of one message: `feedback` for each, in vectorised form where an algorithm overrides this.

        On-policy, `should_learn()` is read again before each row, so rows after the buffer is full are not taken.

        Returns:
            How many leading rows were taken; `rows.nodes` holds their new nodes.
        """
        for i in range(len(rows)):
            if self.on_policy and self.should_learn():
                return i
            rows.nodes[i], self.global_step, log = self.feedback(**rows.row(i))
            if log:
                self._logs.append((self.global_step, log))
        return len(rows)

    def note_client(self, client: Client) -> None:  # noqa: B027 - optional
        """Be told of a connection before its first request; what it is told with changes as the connection goes on."""

    def drain_logs(self) -> list[tuple[int, dict[str, Any]]]:
        """Return and forget the metrics that `feedback` returned since the last call, each with its global step."""
        logs, self._logs = self._logs, []
        return logs

    def results(self) -> Results | None:
        """Return what the run came to, for an algorithm that measures something: asked once, when the run is over."""
        return None

    # Episodes ----------------------------------------------------------------------------------------------------

    def record_episode_metrics(self, episode: dict[str, Any]) -> None:
        """Take the figures of one finished episode, `info["episode"]` of its done row: `r`, `l`, `s`."""
        self.episodes.record(episode)

    def record_finished_episode(self, info: dict[str, Any], next_terminated: bool, next_truncated: bool) -> None:
        """Record the figures of a done row whose `mask` says that a whole episode ended; ignore any other row."""
        if (next_terminated or next_truncated) and "episode" in info and is_finished_episode(info):
            self.record_episode_metrics(info["episode"])

    def note_finished_episodes(self, count: int) -> None:
        """Be told by the trainer how many episodes ended, whether or not their figures are known (see `episodes`)."""
        self.episodes.note_finished(count)

    # Learning ----------------------------------------------------------------------------------------------------

    def pre_learn(self) -> None:  # noqa: B027 - optional
        """Be told that a learn step begins."""

    def learn(self) -> tuple[int, dict[str, Any] | None]:
        """Run one learn step: `learn_impl`, with `rollout/*` added to its metrics. Not to be overridden."""
        global_step, metrics = self.learn_impl()
        self._reported = metrics is not None
        return global_step, None if metrics is None else self.build_train_info(global_step, metrics)

    @abc.abstractmethod
    def learn_impl(self) -> tuple[int, dict[str, Any] | None]:
        """Learn from what is stored, and return the global step and the metrics under slash names.

        Metrics of None: this learn step reports nothing. Its episodes, discarded frames and seconds are told by the
        next one that does. So an algorithm that learns after every message need not write a row for each.
        """

    def build_train_info(self, global_step: int, metrics: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return a learn step's metrics with the episodes' `rollout/*` in front."""
        return {**self.episodes.metrics(), **metrics}

    def post_learn(self) -> None:
        """Be told that a learn step ended: the reported episodes are forgotten. Overrides call `super()`."""
        if self._reported:
            self.episodes.clear()

    # Scheduling and saving ---------------------------------------------------------------------------------------

    @abc.abstractmethod
    def should_learn(self) -> bool:
        """Return whether to learn now. True again after a learn step means one more, without inference between."""

    @abc.abstractmethod
    def should_save(self) -> bool:
        """Return whether to save now; asked at every turn, so `create_checkpoint` must make it false."""

    @abc.abstractmethod
    def should_stop(self) -> bool:
        """Return whether the run is over; asked at every turn."""

    @abc.abstractmethod
    def create_checkpoint(self) -> Checkpoint:
        """Return the whole state of the run, between learn steps."""

    @abc.abstractmethod
    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Restore what `create_checkpoint` returned."""

    def close(self) -> None:  # noqa: B027 - optional
        """Be told that the run is over: release what outlives this object, such as a process. Nothing by default."""

    def init_optimizers(self) -> None:  # noqa: B027 - optional
        """Build optimizers, right after construction and before a checkpoint is loaded. Nothing by default."""
