"""One client's conversation: the protocol's rules, its environments' memory, and its share of the accounting.

Sans-I/O but for the link it is given, so that whole runs are simulated in one thread.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from plugrl_protocol.closing import INTERNAL_ERROR, TOO_BIG, Close, reject
from plugrl_protocol.codec import decode
from plugrl_protocol.connection import CloseNow, Connection, Drop, Ping
from plugrl_protocol.errors import LocalProtocolError, RemoteProtocolError, printable
from plugrl_protocol.messages import Action, Feedback, Infer, Metadata
from plugrl_protocol.spaces import ActionSpace

from plugrl_server.algorithm.feedback_rows import Client
from plugrl_server.policy.action_spaces import to_env_actions
from plugrl_server.serving.connection.env_memory import EnvMemory
from plugrl_server.serving.connection.observations import (
    Layout,
    ObservationReader,
    Reading,
    find_not_finite,
    finite_rows,
    not_finite_key,
)
from plugrl_server.serving.connection.transitions import Transitions, join
from plugrl_server.training.accounting import ConnectionCount, Discard

logger = logging.getLogger(__name__)

MOST_WARNINGS = 20
"""Warnings logged of one connection; a client that errs in every message must not fill the disk."""


class Link(Protocol):
    """What a session does with its WebSocket connection."""

    def send(self, data: bytes) -> None:
        """Send a binary message."""
        ...

    def ping(self) -> None:
        """Send a ping."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Send a close frame."""
        ...

    def abort(self) -> None:
        """End the TCP connection now."""
        ...


class Alarm(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Forget the call."""
        ...

    def when(self) -> float:
        """The time it is due at."""
        ...


class Clock(Protocol):
    """Time and timers."""

    def time(self) -> float:
        """The time, s."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Alarm:
        """Call back at a time."""
        ...


@dataclasses.dataclass(slots=True, eq=False)
class Report:
    """A feedback that waits to be recorded.

    Attributes:
        session: Whose.
        feedback: The message, m rows.
        next_obs: Its observations as the policy reads them, a tree of leading m.
        finite: Which rows have only finite numbers, b1[m]; None where all have.
    """

    session: Session
    feedback: Feedback
    next_obs: dict[str, Any]
    finite: np.ndarray | None


class Desk(Protocol):
    """Where sessions bring what their clients say."""

    def opened(self, session: Session) -> None:
        """A client is connected and has its metadata."""
        ...

    def introduced(self, session: Session, infer: Infer) -> None:
        """A client sent its first infer: `admit` the session, or close it."""
        ...

    def asked(self, session: Session, env_indices: np.ndarray, reading: Reading) -> None:
        """An admitted client wants actions."""
        ...

    def reported(self, report: Report) -> None:
        """A client reports what became of actions."""
        ...

    def left(self, session: Session) -> None:
        """A session is being closed, by either side; told once."""
        ...

    def gone(self, session: Session, *, handshake: bool) -> None:
        """A connection has ended; told once, after `left`."""
        ...


class Session:
    """One connection from its metadata to its end.

    Args:
        name: Number and address, for log and accounting.
        link: The connection.
        desk: Takes infers and feedback.
        clock: Time and timers.
        connection: The protocol's state machine, as the server's end.
        count: The connection's share of the accounting.
        metadata: What the server says first.

    Attributes:
        client: What an algorithm may know of the connection.
        client_number: The number the client declared for a deterministic run.
        action_space: The space that actions are sent in, None when neither client nor policy know one.
    """

    def __init__(
        self,
        name: str,
        link: Link,
        desk: Desk,
        clock: Clock,
        connection: Connection,
        count: ConnectionCount,
        metadata: Metadata,
    ) -> None:
        self.name = name
        self.count = count
        self.client = Client()
        self.client_number = -1
        self.action_space: ActionSpace | None = None
        self._link = link
        self._desk = desk
        self._clock = clock
        self._connection = connection
        self._metadata = metadata
        self._memory = EnvMemory()
        self._reader: ObservationReader | None = None
        self._layout: Layout | None = None
        self._closing = False
        self._ended = False
        self._alarm: Alarm | None = None
        self._warnings = 0

    @property
    def is_open(self) -> bool:
        """Whether the conversation goes on: neither side has begun to close it."""
        return not self._closing

    # From the link -----------------------------------------------------------------------------------------------

    def opened(self) -> None:
        """Begin the conversation: the server speaks first (SPEC 4.1)."""
        self._link.send(self._connection.send(self._metadata, self._clock.time()))
        self._desk.opened(self)
        self._arm()

    def received(self, data: bytes) -> None:
        """Take a binary message."""
        if self._closing:
            self._count_lost(data, Discard.AFTER_CLOSE)
            return
        try:
            self._take(data)
        except Exception as error:
            self._count_lost(data, Discard.MALFORMED)
            self._end_on(error)

    def received_text(self) -> None:
        """Take a text message, which breaks the protocol (SPEC 7.4)."""
        if self._closing:
            return
        try:
            self._connection.receive_text(self._clock.time())
        except RemoteProtocolError as error:
            self._end_on(error)

    def received_pong(self) -> None:
        """Take a pong."""
        self._connection.received_pong(self._clock.time())

    def closed(self, *, handshake: bool, reason: str) -> None:
        """Take note of the end of the connection."""
        if self._ended:
            return
        self._ended = True
        if self._alarm is not None:
            self._alarm.cancel()
        logger.info("%s: closed (%s)", self.name, reason)
        self._leave()
        self._desk.gone(self, handshake=handshake)

    # From the desk -----------------------------------------------------------------------------------------------

    def admit(self, infer: Infer, reader: ObservationReader, action_space: ActionSpace | None) -> None:
        """Let the client take part, and pass its first infer on; an observation that does not fit closes it."""
        self._reader = reader
        self.action_space = action_space
        try:
            self._ask(infer)
        except Exception as error:
            self._end_on(error)

    def answer(
        self, env_indices: np.ndarray, obs: Any, action: np.ndarray, states: tuple[Any, Any], version: int
    ) -> None:
        """Send the actions of n envs and remember what they were chosen from; nothing if the client has gone.

        A client that asks for more than fits into a message is closed with 1009.

        Args:
            env_indices: i8[n], those of the infer.
            obs: The observations acted on, a tree of leading n.
            action: The policy's, [n, H, ...]; sent as values of `action_space`.
            states: The policy's runtime state and the algorithm's train state, trees of leading n.
            version: The policy version that acted.

        Raises:
            ValueError: The policy's actions or states are not of one kind.
            LocalProtocolError: The actions cannot be sent.
        """
        if self._closing:
            return
        self._memory.remember(env_indices, obs, *states, version)
        time_major = np.ascontiguousarray(to_env_actions(self.action_space, action).swapaxes(0, 1))  # SPEC 5.3
        try:
            frame = self._connection.send(Action(time_major, env_indices), self._clock.time())
        except LocalProtocolError as error:
            if error.close != TOO_BIG:
                raise
            logger.warning("%s: actions of %d envs: %s (--max-frame-mib)", self.name, len(env_indices), error.detail)
            self.close(TOO_BIG)
            return
        self._link.send(frame)
        self._arm()

    def join(self, report: Report) -> Transitions:
        """Join a feedback with the step states of its envs, which are then used up."""
        transitions = join(report.feedback, report.next_obs, report.finite, self._memory, self.client)
        for row in transitions.strangers():
            self._warn("Feedback for env %d arrived with no step state", report.feedback.env_indices[row])
        return transitions

    def settle(self, transitions: Transitions) -> None:
        """Keep the outcome of recorded transitions, for the frames that follow them."""
        feedback = transitions.feedback
        self._memory.settle(feedback.env_indices, feedback.terminated, feedback.truncated, transitions.all_nodes())

    def suspend(self) -> None:
        """Stop the feedback deadline: the server learns (lesson 8)."""
        self._connection.suspend(self._clock.time())

    def resume(self) -> None:
        """Let the feedback deadline go on."""
        self._connection.resume(self._clock.time())
        self._arm()

    def reject(self, detail: str) -> None:
        """Close for good: this run cannot serve the client (SPEC 10.2)."""
        logger.warning("%s: rejected: %s", self.name, printable(detail))
        self.close(reject(detail))

    def close(self, close: Close) -> None:
        """Send a close frame. Feedback that crosses it is still counted (as discarded)."""
        if self._closing:
            return
        self._leave()
        self._link.close(close.code, close.reason)
        self._connection.close_sent(self._clock.time())
        self._arm()

    # Inside ------------------------------------------------------------------------------------------------------

    def _end_on(self, error: Exception) -> None:
        """Close because the client broke the protocol; or for a fault of ours, which must not reach the others."""
        if isinstance(error, RemoteProtocolError):
            detail = printable(error.detail)
            logger.warning("%s: %s [%s]; closing with %s", self.name, detail, error.clause, error.close)
            self.close(error.close)
        else:
            logger.error("%s: internal error: %s: %s", self.name, type(error).__name__, error)
            logger.debug("%s", self.name, exc_info=error)
            self.close(INTERNAL_ERROR)

    def _take(self, data: bytes) -> None:
        message = self._connection.receive(data, self._clock.time())
        if isinstance(message, Feedback):
            self._report(message)
        elif isinstance(message, Infer):
            if self._reader is None:
                self._desk.introduced(self, message)
            else:
                self._ask(message)

    def _ask(self, infer: Infer) -> None:
        reading = self._read(infer.observation, "infer.data")
        fault = find_not_finite(reading.obs)
        if fault is not None:
            row, key = fault
            raise RemoteProtocolError(
                "5.2 observation/finite", f"infer.data.{key}: not finite for env {infer.env_indices[row]}"
            )
        if len(infer.env_indices) > len(self.client.envs):
            self.client.envs = tuple(sorted({*self.client.envs, *infer.env_indices.tolist()}))
        self._desk.asked(self, infer.env_indices, reading)

    def _report(self, feedback: Feedback) -> None:
        reading = self._read(feedback.observation, "feedback.data.obs")
        finite = finite_rows(reading.obs, feedback.rewards)
        if finite is not None:
            for row in np.flatnonzero(~finite).tolist():
                key = printable(not_finite_key(reading.obs, feedback.rewards, row))
                self._warn("feedback.data.%s: not finite for env %d; row discarded", key, feedback.env_indices[row])
        self.count.receive(len(feedback.env_indices))
        self._desk.reported(Report(self, feedback, reading.obs, finite))

    def _read(self, observation: Any, path: str) -> Reading:
        if self._reader is None:
            raise RemoteProtocolError("4.2 exchange/alternation", f"{path}: before any action")
        reading = self._reader.read(observation, path, self._layout)
        self._layout = reading.layout
        return reading

    def _count_lost(self, data: bytes, reason: Discard) -> None:
        """Count the rows of a feedback that is not recorded, so that the sums agree with the client's."""
        try:
            message = decode(data)
        except RemoteProtocolError:
            return
        if isinstance(message, dict) and message.get("message_type") == "feedback":
            indices = message.get("env_indices")
            rows = len(indices) if isinstance(indices, np.ndarray) and indices.ndim == 1 else 0
            self.count.receive(rows)
            self.count.discard(reason, rows)

    def _leave(self) -> None:
        if not self._closing:
            self._closing = True
            self.client.is_open = False
            self._desk.left(self)

    def _arm(self) -> None:
        """Keep one timer, due no later than the connection's deadline; only what we do brings that nearer."""
        due = None if self._ended else self._connection.deadline
        if due is None or (self._alarm is not None and self._alarm.when() <= due):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._clock.call_at(due, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        for event in self._connection.tick(self._clock.time()):
            if isinstance(event, Ping):
                self._link.ping()
            elif isinstance(event, CloseNow):
                logger.warning("%s: %s; closing with %s", self.name, event.detail, event.close)
                self.close(event.close)
            elif isinstance(event, Drop):
                self._link.abort()
                return
        self._arm()

    def _warn(self, text: str, *values: object) -> None:
        self._warnings += 1
        if self._warnings <= MOST_WARNINGS:
            logger.warning(f"{text} (%s)", *values, self.name)
        if self._warnings == MOST_WARNINGS:
            logger.warning("%s: further warnings of this connection are not shown", self.name)
