"""What the serving side needs from the program around it, and what it hands back at the end."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from plugrl_protocol.closing import STOP, Close
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import Declaration

from plugrl_server.training.accounting import Accounting
from plugrl_server.training.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class ServingOptions:
    """How to serve.

    Attributes:
        host: Address to listen on.
        port: TCP port; 0 lets the system choose.
        api_key: Key that handshakes must carry (SPEC 1.2), or None.
        max_frame: Largest accepted WebSocket message in bytes (SPEC 1.1).
        mini_infer_batch_size: Least number of envs in a batch, as far as `infer_wait_ms` allows.
        infer_wait_ms: Longest wait of a request for others, ms.
        feedback_wait_timeout: Longest time from an action to its feedback, s; does not run during a learn step.
        metadata: The operator's additions to the metadata (SPEC 5.1).
        deterministic: Number of connections to wait for and then to serve in rounds, or None.
        spin_us: How long to poll the sockets before sleeping, us; None: while it pays (see `worker.Spinner`).
        ping_interval: Time between pings, s.
        ping_timeout: Time without a pong after which a peer is given up, s.
        open_timeout: Longest time from the TCP connect to the end of the upgrade, s.
        close_timeout: Longest time from our close frame to the peer's, s.
        stop_grace: Longest time a clean stop waits for the learn step in flight, s.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    max_frame: int = 256 * 2**20
    mini_infer_batch_size: int = 1
    infer_wait_ms: float = 5.0
    feedback_wait_timeout: float = 60.0
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    deterministic: int | None = None
    spin_us: float | None = None
    ping_interval: float = 20.0
    ping_timeout: float = 60.0
    open_timeout: float = 10.0
    close_timeout: float = 2.0
    stop_grace: float = 10.0

    def __post_init__(self) -> None:
        for name in ("feedback_wait_timeout", "ping_interval", "ping_timeout", "open_timeout", "close_timeout"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name}: expected a finite time above 0 s, got {getattr(self, name)}")
        for name in ("infer_wait_ms", "spin_us", "stop_grace"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name}: expected a finite time of 0 or more, got {value}")
        for name in ("mini_infer_batch_size", "deterministic", "max_frame"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")


class TrainerSource(Protocol):
    """Builds the run's trainer, before the socket opens or on the first declaration.

    Attributes:
        trainer: The trainer, when it is built already; set by `build` otherwise.
    """

    trainer: Trainer | None

    def build(self, declaration: Declaration | None, observation: Observation) -> Trainer:
        """Build policy and algorithm and warm them up; blocks, and is called in a worker thread.

        Args:
            declaration: What the first client declared, None when it declared nothing.
            observation: The observation of its first infer.

        Raises:
            CannotServe: This client cannot be served; the text is sent to it (SPEC 10.2) and the server waits on.
        """
        ...

    def disagreement(self, declaration: Declaration | None, observation: Observation) -> str | None:
        """Return why a later client does not fit this run (`action_dim 3, this run has 6`), None when it does."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return what metadata can say by now: algorithm, policy, action_horizon, action_dim; unknown keys absent."""
        ...


class RunEvents(Protocol):
    """What the serving side reports. Called on the event loop's thread: implementations must be quick."""

    def listening(self, host: str, port: int) -> None:
        """The socket is open; `port` is the real one."""
        ...

    def connected(self, count: int) -> None:
        """A client finished its handshake; `count` are connected now."""
        ...

    def disconnected(self, count: int) -> None:
        """A connection ended; `count` are left."""
        ...

    def stepped(self, global_step: int) -> None:
        """Feedback was recorded."""
        ...

    def learning(self, started: bool) -> None:
        """A learn step started or ended."""
        ...

    def learned(self, global_step: int, metrics: Mapping[str, float]) -> None:
        """A learn step ended with these metrics (the trainer's `on_learn` has had them already, in the worker)."""
        ...

    def logged(self, global_step: int, metrics: Mapping[str, Any]) -> None:
        """`feedback` returned metrics to log."""
        ...

    def saved(self, path: Path) -> None:
        """A checkpoint was written."""
        ...

    def warned(self, text: str) -> None:
        """Something about the whole run deserves the operator's attention (one connection's faults are logged)."""
        ...


@dataclasses.dataclass(frozen=True)
class Ending:
    """Why and how a run ends.

    Attributes:
        reason: For the result.
        exit_code: For the process.
        error: One line naming the place, or None.
        save: Whether the last complete state is worth writing.
        close: What the clients are told.
    """

    reason: str
    exit_code: int = 0
    error: str | None = None
    save: bool = True
    close: Close = STOP


@dataclasses.dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes:
        reason: "finished", "failed", or what `request_stop` was given ("interrupted", ...).
        exit_code: For the process: 0 for a run that ended well.
        error: What went wrong, one line naming the place, or None.
        accounting: What became of every feedback row.
        global_step: Decisions counted at the end.
        saved: The last checkpoint written, or None.
    """

    reason: str
    exit_code: int
    error: str | None
    accounting: Accounting
    global_step: int
    saved: Path | None
