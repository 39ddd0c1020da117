"""What one message of a client shows by itself: the clauses it keeps, and where it differs from the Python client."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from plugrl_protocol.conformance.report import Report, ViolationError
from plugrl_protocol.messages import Feedback, Infer
from plugrl_protocol.observation import Observation

_EVERY_MESSAGE = (
    "1 layers/websocket",
    "2 envelope/message-type",
    "3 codec/msgpack",
    "3.1 codec/keys",
    "3.2 codec/array",
    "3.3 codec/limits",
    "3.4 observation/text",
    "4.2 exchange/alternation",
    "4.4 indices/dtype",
    "4.4 indices/empty",
    "4.4 indices/range",
    "4.4 indices/unique",
    "5.2 observation/keys",
    "5.2 observation/shape",
    "7.4 closing/text-frame",
)
_INFER = ("5.2 infer/shape", "5.2 observation/finite")
_FEEDBACK = (
    "5.4 feedback/shape",
    "5.4 feedback/keys",
    "5.4 feedback/rewards",
    "5.4 feedback/flags",
    "5.4 feedback/finite",
    "5.4 feedback/info",
    "7.6 feedback/held",
)
_SPACES = ("action", "env", "num_envs", "max_episode_steps", "client")

Wire = Mapping[str, Any]


def grade_infer(report: Report, wire: Wire, infer: Infer) -> None:
    """Count what a well-formed infer keeps, and note its oddities.

    Raises:
        ViolationError: It holds NaN or an infinity.
    """
    _require_finite(infer.observation, infer.env_indices, "infer.data", "5.2 observation/finite")
    report.passed(*_EVERY_MESSAGE, *_INFER)
    if infer.reuse is not None:
        report.passed("10.1 reuse/shape", "10.1 reuse/unoffered", "10.1 reuse/held")
    if infer.spaces is not None:
        report.passed(*(f"10.2 spaces/{key}" for key in _SPACES if key in wire["spaces"]))
    _note_message(report, wire, wire["data"])


def grade_feedback(report: Report, wire: Wire, feedback: Feedback) -> None:
    """Count what a well-formed feedback keeps, and note its oddities.

    Raises:
        ViolationError: It holds NaN or an infinity.
    """
    indices = feedback.env_indices
    _require_finite(feedback.observation, indices, "feedback.data.obs", "5.4 feedback/finite")
    if not np.isfinite(feedback.rewards).all():
        env = indices[~np.isfinite(feedback.rewards)][0]
        raise ViolationError("5.4 feedback/finite", f"feedback.data.rewards: env {env}: expected a finite number")
    report.passed(*_EVERY_MESSAGE, *_FEEDBACK)
    if "episode" in feedback.info:
        report.passed("5.4 feedback/episode")
    _note_message(report, wire, wire["data"]["obs"])
    rewards = wire["data"]["rewards"].dtype
    _prefer(report, "5.4 feedback/rewards-float32", "feedback.data.rewards", rewards, "float32")


def _require_finite(observation: Observation, indices: np.ndarray, path: str, clause: str) -> None:
    for name, state in observation.states.items():
        if state.dtype.kind == "f" and not np.isfinite(state).all():
            row = int(np.flatnonzero(~np.isfinite(state).all(axis=1))[0])
            who = f" (env {indices[row]})" if len(indices) == len(state) else ""
            raise ViolationError(clause, f"{path}.states.{name}: expected finite numbers, row {row}{who} has others")


def _note_message(report: Report, wire: Wire, observation: Wire) -> None:
    if isinstance(observation["text"], list):
        detail = "text travels as a msgpack array of str; the Python client sends a NumPy <U array (Gap)"
        report.note("3.4 observation/text", detail)
    for name, state in observation["states"].items():
        _prefer(report, "5.2 observation/float64", f"states.{name}", state.dtype, "float64")
    for name in ("env_indices", "step_ids"):
        _prefer(report, "4.4 indices/width", name, wire[name].dtype, "int64")


def _prefer(report: Report, clause: str, path: str, dtype: np.dtype[Any], usual: str) -> None:
    if dtype == np.dtype(usual):
        report.passed(clause)
    else:
        report.note(clause, f"{path}: {dtype.name}; the Python client sends {usual}")


class StepIds:
    """Counts the chunks of each env's episode on one connection (SPEC 5.2)."""

    def __init__(self) -> None:
        self._completed: dict[int, int] = {}

    def check(self, report: Report, message: Infer | Feedback, path: str) -> None:
        """Compare the step_ids of a message; a difference is a note."""
        for env, got, expected in self._wrong(message):
            detail = f"{path}.step_ids: expected chunks completed in this episode on this connection"
            report.note(
                "5.2 infer/step-ids", f"{detail}; the first difference: env {env}, expected {expected}, got {got}"
            )
            return
        report.passed("5.2 infer/step-ids")

    def _wrong(self, message: Infer | Feedback) -> Iterator[tuple[int, int, int]]:
        for env, got in zip(message.env_indices.tolist(), message.step_ids.tolist(), strict=True):
            expected = self._completed.get(env, 0)
            if got != expected:
                yield env, got, expected

    def completed(self, feedback: Feedback) -> None:
        """Count the chunks of a feedback."""
        for env, done in zip(feedback.env_indices.tolist(), feedback.terminated | feedback.truncated, strict=True):
            self._completed[env] = 0 if done else self._completed.get(env, 0) + 1
