"""One end of a connection, sans-I/O: frame in -> message, message in -> frame, and one deadline (SPEC 4, 7)."""

import math
from dataclasses import dataclass, fields
from typing import NoReturn

from plugrl_protocol.closing import (
    ACTION_TIMEOUT,
    FEEDBACK_TIMEOUT,
    METADATA_TIMEOUT,
    RESYNC,
    TEXT_FRAME,
    TOO_BIG,
    UNRESPONSIVE,
    Close,
    complain,
)
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.errors import LocalProtocolError, RemoteProtocolError
from plugrl_protocol.exchange import Exchange, Role, Turn
from plugrl_protocol.messages import Infer, Message, Metadata, message_from_wire

__all__ = ["CloseNow", "Connection", "Drop", "Ping", "Role", "Timeouts", "Turn"]

REUSE = "reuse-feedback-obs"
DECLARE = "declare-spaces"


@dataclass(frozen=True)
class Timeouts:
    """How long a connection waits for what, in seconds; None waits for ever.

    Attributes:
        feedback: Server: from an action to its feedback, not counting the time the server learns (SPEC 7.3).
        action: Client: from an infer to its action.
        metadata: Client: from the start of connecting to the metadata.
        ping_interval: Between pings.
        ping_timeout: From a ping that nothing answers to giving the peer up.
        close: From our close frame to dropping the transport.

    Raises:
        ValueError: One is 0, negative, infinite, NaN or no number; the text names it.
    """

    feedback: float | None = 60.0
    action: float | None = None
    metadata: float | None = 30.0
    ping_interval: float | None = 20.0
    ping_timeout: float | None = 60.0
    close: float | None = 2.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None:
                continue
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value <= 0:
                raise ValueError(f"{each.name} timeout: expected a positive, finite number of seconds, got {value!r}")


@dataclass(frozen=True)
class Ping:
    """Send a WebSocket ping."""


@dataclass(frozen=True)
class CloseNow:
    """Close the connection: a deadline has passed.

    Attributes:
        close: With which code and reason.
        detail: Which phase took too long, for the log.
    """

    close: Close
    detail: str


@dataclass(frozen=True)
class Drop:
    """Drop the transport: the peer did not answer our close frame in time."""


class Connection:
    """One end of one connection. Feed it everything that arrives before asking `tick` what is overdue.

    Attributes:
        role: Which end this is.
        max_frame: The largest frame accepted or sent, in bytes (SPEC 1.1).
    """

    def __init__(
        self, role: Role, *, now: float, timeouts: Timeouts = Timeouts(), max_frame: int = 256 * 2**20
    ) -> None:
        self.role = role
        self.max_frame = max_frame
        self._timeouts = timeouts
        self._exchange = Exchange()
        self._features: frozenset[str] = frozenset()
        self._failure: RemoteProtocolError | None = None
        self._reply_due = _after(now, timeouts.metadata) if role is Role.CLIENT else None
        self._paused: float | None = None  # what was left of the feedback deadline
        self._suspended = False
        self._ping_due = _after(now, timeouts.ping_interval)
        self._silent_since: float | None = None  # when the first ping that nothing has answered was sent
        self._drop_due: float | None = None
        self._closing = False

    @property
    def turn(self) -> Turn:
        """What has to come next."""
        return self._exchange.turn

    @property
    def features(self) -> frozenset[str]:
        """What the server's metadata lists (SPEC 10); empty before it."""
        return self._features

    @property
    def action_pending(self) -> bool:
        """Whether an infer waits for its action."""
        return self._exchange.turn is Turn.ACTION

    @property
    def unheld(self) -> frozenset[int]:
        """Envs of the last feedback that held no action: their rows are to be discarded (SPEC 7.6)."""
        return self._exchange.unheld

    def holding(self, env_index: int) -> bool:
        """Whether the env holds an action on this connection."""
        return env_index in self._exchange.holders

    def receive(self, frame: bytes | bytearray | memoryview, now: float) -> Message:
        """Take one binary frame of the peer.

        Raises:
            RemoteProtocolError: The peer broke the protocol; close with `error.close`. Every later call raises it again.
        """
        if self._failure is not None:
            raise self._failure
        self._alive()
        try:
            if len(frame) > self.max_frame:
                raise RemoteProtocolError(
                    "1.1 framing/size", f"frame: expected at most {self.max_frame} bytes, got {len(frame)}", TOO_BIG
                )
            message = message_from_wire(decode(frame))
            self._exchange.received(self.role.peer, message)
            self._check_features(message)
        except RemoteProtocolError as error:
            self._fail(error)
        self._rearm(message, now)
        return message

    def receive_text(self, now: float) -> NoReturn:
        """Take a text frame, which breaks the protocol (SPEC 7.4).

        Raises:
            RemoteProtocolError: Always.
        """
        self._fail(
            RemoteProtocolError(
                "7.4 closing/text-frame",
                "frame: expected binary, got text",
                RESYNC if self.role is Role.SERVER else TEXT_FRAME,
            )
        )

    def send(self, message: Message, now: float) -> bytes:
        """The frame for `message`.

        Raises:
            LocalProtocolError: It must not be sent now, or not as it is; nothing has changed.
        """
        frame = encode(message.to_wire())
        if len(frame) > self.max_frame:
            raise LocalProtocolError(
                "1.1 framing/size", f"frame: expected at most {self.max_frame} bytes, got {len(frame)}", TOO_BIG
            )
        self._exchange.sent(self.role, message)
        self._rearm(message, now)
        return frame

    def received_pong(self, now: float) -> None:
        """The peer answered a ping."""
        self._alive()

    def suspend(self, now: float) -> None:
        """The server begins to learn: the feedback deadline stands still (SPEC 4.2)."""
        if self._suspended or self.role is Role.CLIENT:
            return
        self._suspended = True
        if self._reply_due is not None:
            self._paused, self._reply_due = self._reply_due - now, None

    def resume(self, now: float) -> None:
        """The server has learnt: the feedback deadline goes on with what was left of it."""
        self._suspended = False
        if self._paused is not None:
            self._reply_due, self._paused = now + self._paused, None

    def close_sent(self, now: float) -> None:
        """Our close frame has left: from here on only the close timeout runs."""
        self._closing = True
        self._drop_due = _after(now, self._timeouts.close)

    @property
    def deadline(self) -> float | None:
        """The earliest time at which `tick` has something to say."""
        if self._closing:
            return self._drop_due
        dues = (self._reply_due, self._ping_due, self._silence_due)
        return min((due for due in dues if due is not None), default=None)

    def tick(self, now: float) -> list[Ping | CloseNow | Drop]:
        """What is due at `now`."""
        if self._closing:
            return [Drop()] if _passed(self._drop_due, now) else []
        if _passed(self._reply_due, now):
            self._reply_due = None
            return [self._overdue()]
        if _passed(self._silence_due, now):
            self._silent_since = None
            return [CloseNow(UNRESPONSIVE, f"no answer to a ping within {self._timeouts.ping_timeout:g} s")]
        if _passed(self._ping_due, now):
            self._ping_due = _after(now, self._timeouts.ping_interval)
            self._silent_since = now if self._silent_since is None else self._silent_since
            return [Ping()]
        return []

    @property
    def _silence_due(self) -> float | None:
        return None if self._silent_since is None else _after(self._silent_since, self._timeouts.ping_timeout)

    def _overdue(self) -> CloseNow:
        t = self._timeouts
        if self.role is Role.SERVER:
            return CloseNow(FEEDBACK_TIMEOUT, f"no feedback within {t.feedback:g} s of its action")
        if self.turn is Turn.METADATA:
            return CloseNow(METADATA_TIMEOUT, f"no metadata within {t.metadata:g} s of connecting")
        return CloseNow(ACTION_TIMEOUT, f"no action within {t.action:g} s of its infer")

    def _alive(self) -> None:
        self._silent_since = None

    def _fail(self, error: RemoteProtocolError) -> NoReturn:
        if self.role is Role.CLIENT and error.close == RESYNC:  # resync is a server's word
            error.close = complain(error.detail)
        self._failure = error
        raise error

    def _check_features(self, message: Message) -> None:
        """Note what the server offers; refuse what it does not (SPEC 10.1)."""
        if isinstance(message, Metadata):
            self._features = message.features
        elif isinstance(message, Infer) and message.reuse is not None:
            raise RemoteProtocolError("10.1 reuse/unoffered", f"infer.reuse: this server does not offer {REUSE}")

    def _rearm(self, message: Message, now: float) -> None:
        """Set the deadline of the turn that `message` began."""
        if isinstance(message, Metadata):
            self._features = message.features
        self._paused = self._reply_due = None
        if self.role is Role.CLIENT and self.turn is Turn.ACTION:
            self._reply_due = _after(now, self._timeouts.action)
        elif self.role is Role.SERVER and self.turn is Turn.FEEDBACK:
            if self._suspended:
                self._paused = self._timeouts.feedback
            else:
                self._reply_due = _after(now, self._timeouts.feedback)


def _after(now: float, seconds: float | None) -> float | None:
    return None if seconds is None else now + seconds


def _passed(due: float | None, now: float) -> bool:
    return due is not None and now >= due
