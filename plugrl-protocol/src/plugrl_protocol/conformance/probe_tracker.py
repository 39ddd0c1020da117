"""Follows the probe environment over the wire: what each feedback says the client did with its chunk (SPEC 8.1)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from plugrl_protocol.codec.fields import describe
from plugrl_protocol.conformance.probe_env import MAX_ENVS, coded_action, episode_length
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.messages import Feedback, Infer

_ENVIRONMENT = "8.1 probe/environment"


@dataclass
class _Env:
    """What one env is known to show."""

    time: int
    action: np.ndarray | None = None  # at the last feedback
    done: bool = False
    chunk: np.ndarray | None = None  # [H, n, width], of the infer that asked last
    row: int = 0


@dataclass(frozen=True)
class _Row:
    """One row of a feedback."""

    env: int
    time: int
    action: np.ndarray
    reward: float
    terminated: bool
    truncated: bool


class ProbeTracker:
    """Follows the envs of one connection.

    Args:
        passed: Told of each clause that has been seen to hold.
        horizon: H of the actions to give.
        width: Their number of elements.
        dtype: Their dtype.
    """

    def __init__(self, passed: Callable[..., None], horizon: int, width: int, dtype: np.dtype[Any]) -> None:
        self._passed = passed
        self._horizon, self._width, self._dtype = horizon, width, dtype
        self._envs: dict[int, _Env] = {}

    def answer(self, infer: Infer) -> np.ndarray:
        """The actions for an infer, after a look at what it shows.

        Raises:
            ViolationError: It shows what the probe environment cannot show.
        """
        sent = np.ones(len(infer.env_indices), bool) if infer.reuse is None else ~infer.reuse
        times, actions = _read_states(infer.observation.states, "infer.data.states")
        for place, env in enumerate(infer.env_indices[sent].tolist()):
            self._begin(env, _whole(times[place], "infer.data.states.t"), actions[place])
        indices = infer.env_indices.tolist()
        chunk = coded_action(indices, self._horizon, self._width, self._dtype)
        for row, env in enumerate(indices):
            self._envs[env].chunk, self._envs[env].row = chunk, row
        return chunk

    def _begin(self, env: int, time: int, action: np.ndarray) -> None:
        """Take in the observation that an infer sends for `env`."""
        if env >= MAX_ENVS:
            raise ViolationError(_ENVIRONMENT, f"infer.env_indices: expected envs below {MAX_ENVS}, got {env}")
        self._check_continuity(env, time, action)
        if not 0 <= time < episode_length(env):
            detail = f"env {env}: expected t in 0..{episode_length(env) - 1} in an infer, got {time}"
            raise ViolationError(_ENVIRONMENT, detail)
        self._envs[env] = _Env(time)

    def _check_continuity(self, env: int, time: int, action: np.ndarray) -> None:
        """Hold what an infer shows of `env` against its last feedback on this connection."""
        known = self._envs.get(env)
        if known is None or known.action is None:
            return
        if not known.done:
            if time != known.time or not np.array_equal(action, known.action):
                detail = f"env {env}: expected the infer to show what its feedback showed, t = {known.time}, got {time}"
                raise ViolationError(_ENVIRONMENT, detail)
        elif time != 0:
            detail = f"env {env}: expected t = 0 in the infer after its episode ended, got {time}"
            raise ViolationError("5.4 feedback/next-episode", detail)
        else:
            self._passed("5.4 feedback/next-episode")

    def feedback(self, feedback: Feedback) -> None:
        """Check what each row of a feedback says.

        Raises:
            ViolationError: The client did something else than SPEC 5.3 and 5.4 say.
        """
        times, actions = _read_states(feedback.observation.states, "feedback.data.obs.states")
        for place, env in enumerate(feedback.env_indices.tolist()):
            row = _Row(
                env,
                _whole(times[place], "feedback.data.obs.states.t"),
                actions[place],
                float(feedback.rewards[place]),
                bool(feedback.terminated[place]),
                bool(feedback.truncated[place]),
            )
            self._check(self._envs[env], row)

    def _check(self, known: _Env, row: _Row) -> None:
        steps = self._steps_run(known, row)
        self._check_time(known.time, steps, row)
        if row.reward != steps:
            detail = f"env {row.env}: expected the sum of {steps} rewards of 1, got {row.reward:g}"
            raise ViolationError("5.4 feedback/reward-sum", detail)
        if steps > 1:
            self._passed("5.4 feedback/reward-sum")
        ended = row.time == episode_length(row.env)
        if row.truncated or row.terminated != ended:
            detail = f"env {row.env}: expected terminated {ended} and truncated False at t = {row.time}"
            raise ViolationError(_ENVIRONMENT, f"{detail}, got {row.terminated} and {row.truncated}")
        if ended:
            self._passed(
                "5.4 feedback/final-observation", *(["5.4 feedback/early-end"] if steps < self._horizon else [])
            )
        self._passed(_ENVIRONMENT, "5.3 action/prefix")
        known.time, known.action, known.done, known.chunk = row.time, row.action, row.terminated, None

    def _steps_run(self, known: _Env, row: _Row) -> int:
        """How many steps of its chunk the env has run, by the action that it shows as its last."""
        chunk = known.chunk
        assert chunk is not None  # noqa: S101  # the exchange knows that the env holds an action
        steps = _place(chunk[:, known.row], row.action)
        if steps is None:
            raise _misread(chunk, known.row, row)
        wrong = _env_major(chunk)[known.row, steps - 1]
        if not np.array_equal(wrong, row.action):
            self._passed("5.3 action/time-major")
        other = _as_float32(chunk)
        if other is not None and not np.array_equal(other[steps - 1, known.row], row.action):
            self._passed("5.3 action/dtype")
        return steps

    def _check_time(self, before: int, steps: int, row: _Row) -> None:
        if row.time == before + steps and row.time <= episode_length(row.env):
            return
        shown = f"env {row.env} at t = {before} ran {steps} steps of its chunk: expected t = {before + steps}"
        if row.terminated and row.time < episode_length(row.env):
            detail = f"{shown} on its done step, got {row.time}; a done step shows its own observation"
            raise ViolationError("5.4 feedback/final-observation", detail)
        if row.time > episode_length(row.env) or before + steps > episode_length(row.env):
            detail = f"env {row.env}: its episode ends after {episode_length(row.env)} steps, and its chunk with it"
            raise ViolationError("5.4 feedback/early-end", f"{detail}; got t = {row.time} after {steps} steps")
        if row.time - before > self._horizon:
            raise ViolationError("5.3 action/prefix", f"{shown}, got {row.time}: more steps than the chunk has")
        raise ViolationError(_ENVIRONMENT, f"{shown}, got {row.time}")


def _misread(chunk: np.ndarray, place: int, row: _Row) -> ViolationError:
    """Why the env shows an action that its chunk does not have."""
    shown = [float(f"{value:.6g}") for value in row.action.tolist()]
    head = f"env {row.env} shows the action {shown}, which is none of its chunk"
    other = _as_float32(chunk)
    if _place(_env_major(chunk)[place], row.action) is not None:
        return ViolationError("5.3 action/time-major", f"{head}; it read the array [n,H,...], not [H,n,...]")
    if other is not None and _place(other[:, place], row.action) is not None:
        return ViolationError("5.3 action/dtype", f"{head}; it read the {chunk.dtype.name} array as float32")
    for other_place in range(chunk.shape[1]):
        if _place(chunk[:, other_place], row.action) is not None:
            return ViolationError("5.3 action/time-major", f"{head} but of row {other_place}; its own is row {place}")
    if row.action.shape != chunk.shape[2:]:
        return ViolationError(_ENVIRONMENT, f"{head}; expected {describe(chunk[0, 0])}")
    return ViolationError("5.3 action/dtype", f"{head}; expected one of {chunk.dtype.name} {chunk[:, place].tolist()}")


def _env_major(chunk: np.ndarray) -> np.ndarray:
    """The chunk's bytes read as [n,H,...]."""
    horizon, rows = chunk.shape[:2]
    return chunk.reshape(rows, horizon, *chunk.shape[2:])


def _as_float32(chunk: np.ndarray) -> np.ndarray | None:
    """The chunk's first bytes read as float32, as [H,n,...]; None where that is what they are."""
    if chunk.dtype == np.float32:
        return None
    values = np.frombuffer(chunk.tobytes(), np.float32)
    return values[: chunk.size].reshape(chunk.shape) if len(values) >= chunk.size else None


def _place(rows: np.ndarray, action: np.ndarray) -> int | None:
    """Which of `rows` the action is, counted from 1."""
    if rows.shape[1:] != action.shape:
        return None
    with np.errstate(invalid="ignore"):
        matches = np.flatnonzero(np.all(rows.astype(np.float64) == action, axis=1))
    return int(matches[-1]) + 1 if len(matches) else None


def _read_states(states: Any, path: str) -> tuple[np.ndarray, np.ndarray]:
    for name in ("t", "a"):
        if name not in states:
            raise ViolationError(_ENVIRONMENT, f"{path}: expected t and a, got {', '.join(sorted(states)) or 'none'}")
    if states["t"].shape[1] != 1:
        raise ViolationError(_ENVIRONMENT, f"{path}.t: expected float[n,1], got {describe(states['t'])}")
    return states["t"][:, 0], states["a"]


def _whole(value: Any, path: str) -> int:
    if not float(value).is_integer():
        raise ViolationError(_ENVIRONMENT, f"{path}: expected whole numbers, got {value:g}")
    return int(value)
