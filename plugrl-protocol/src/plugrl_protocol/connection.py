"""One end of a connection, sans-I/O: frame in -> message, message in -> frame, and one deadline (SPEC 4, 7)."""

import math
from dataclasses import dataclass, fields
from typing import NoReturn, TypeAlias

import numpy as np

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
from plugrl_protocol.codec.encoder import Pieces
from plugrl_protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from plugrl_protocol.exchange import Exchange, Role, Turn
from plugrl_protocol.messages import Action, Feedback, Infer, Message, Metadata
from plugrl_protocol.messages.forms import MessageWriter
from plugrl_protocol.messages.templates import MessageReader
from plugrl_protocol.reuse import HeldObservations, ReusableEnvs

__all__ = ["DECLARE", "REUSE", "CloseNow", "Connection", "Drop", "Ping", "Role", "Timeouts", "TimerAction", "Turn"]

REUSE = "reuse-feedback-obs"
DECLARE = "declare-spaces"


@dataclass(frozen=True)
class Timeouts:
    """How long a connection waits for what, in seconds; None waits for ever.

    Attributes:
        feedback: Server: from an action to its feedback, not counting the time the server learns (SPEC 7.3).
        action: Client: from an infer to its action.
        metadata: Client: from the start of connecting to the metadata.
        ping_interval: From one ping to the next (SPEC 7.7).
        ping_timeout: From a ping to giving up a peer that has not been heard of since (SPEC 7.7).
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


DEFAULT_TIMEOUTS = Timeouts()


@dataclass(frozen=True)
class Ping:
    """Send a WebSocket ping."""


@dataclass(frozen=True)
class CloseNow:
    """Close the connection: a deadline has passed.

    Attributes:
        close: The code and reason to close with.
        detail: Which phase took too long, for the log.
    """

    close: Close
    detail: str


@dataclass(frozen=True)
class Drop:
    """Drop the transport: the peer did not answer our close frame in time."""


TimerAction: TypeAlias = Ping | CloseNow | Drop


class Connection:
    """One end of one connection. Feed it everything that has arrived before asking `tick` what is overdue.

    Args:
        role: Which end this is.
        now: The time, on any clock that does not go back; for a client, when it began to connect.
        timeouts: How long to wait for what.
        max_frame: The largest frame to accept or to send, in bytes (SPEC 1.1).
    """

    def __init__(
        self, role: Role, *, now: float, timeouts: Timeouts = DEFAULT_TIMEOUTS, max_frame: int = 256 * 2**20
    ) -> None:
        self.role = role
        self._is_client = role is Role.CLIENT
        self._peer = role.peer
        self._timeouts = timeouts
        self._max_frame = max_frame
        self._exchange = Exchange()
        self._held = HeldObservations(max_frame)  # of a server that offers REUSE
        self._reusable = ReusableEnvs()  # of a client that was offered it
        self._reader = MessageReader()
        self._writer = MessageWriter()
        self._features: frozenset[str] = frozenset()
        self._offers_reuse = False  # whether they have REUSE
        self._failure: RemoteProtocolError | None = None
        self._closing = False
        # The seconds that the peer has to reply, by the message that asks for it.
        self._reply_within: dict[type[Message], float | None] = (
            {Infer: timeouts.action} if self._is_client else {Action: timeouts.feedback}
        )
        self._reply_due = _after(now, timeouts.metadata) if role is Role.CLIENT else None
        self._reply_left: float | None = None  # of the feedback deadline, while the server learns
        self._learning = False
        self._ping_due = _after(now, timeouts.ping_interval)
        self._silence_due: float | None = None  # runs from the first ping after the peer was last heard of
        self._drop_due: float | None = None
        self._heard = now

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

    def reusable(self, env_indices: np.ndarray) -> np.ndarray:
        """Client: b1[n], whose last feedback's observation the server holds (SPEC 10.1); nobody's without REUSE."""
        return self._reusable.among(env_indices)

    def receive(self, frame: bytes | bytearray | memoryview, now: float) -> Message:
        """Take a binary frame from the peer.

        The message's arrays are views on the frame, which must not change afterwards. An infer that reuses
        observations comes completed (SPEC 10.1): with all its rows, and without `reuse`.

        Raises:
            RemoteProtocolError: The peer broke the protocol; close with `error.close`. Later calls raise it again.
        """
        if self._failure is not None:
            raise self._failure
        self._hear(now)
        try:
            if len(frame) > self._max_frame:
                self._refuse_size(len(frame), RemoteProtocolError)
            message = self._reader.read(frame if type(frame) is bytes else bytes(frame))
            if type(message) is Infer:
                self._check_offered(message, RemoteProtocolError)
            if self._offers_reuse and not self._is_client:
                message = self._complete(message, len(frame))
            self._exchange.received(self._peer, message)
        except RemoteProtocolError as error:
            self._fail(error)
        self._begin_turn(message, now)
        return message

    def receive_text(self, now: float) -> NoReturn:
        """Take a text frame, which breaks the protocol (SPEC 7.4).

        Raises:
            RemoteProtocolError: Always.
        """
        self._hear(now)
        close = RESYNC if self.role is Role.SERVER else TEXT_FRAME
        self._fail(RemoteProtocolError("7.4 closing/text-frame", "frame: expected binary, got text", close))

    def send(self, message: Message, now: float) -> bytes:
        """The frame for `message`.

        Raises:
            LocalProtocolError: It must not be sent, not now, or not as it is; nothing has changed.
        """
        pieces = self.send_pieces(message, now)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def send_pieces(self, message: Message, now: float) -> Pieces:
        """As `send`, the frame in pieces to be joined: images are not copied, but are the message's own.

        Raises:
            LocalProtocolError: As for `send`.
        """
        if self._closing or self._failure is not None:
            raise LocalProtocolError("7.4 closing/silence", "nothing may be sent: the connection is closing")
        if type(message) is Infer:
            self._check_offered(message, LocalProtocolError)
            if message.reuse is not None:
                self._reusable.check(message.env_indices, message.reuse)
        frame = self._writer.write(message)
        size = len(frame[0]) if len(frame) == 1 else sum(memoryview(piece).nbytes for piece in frame)
        if size > self._max_frame:
            self._refuse_size(size, LocalProtocolError)
        self._exchange.sent(self.role, message)
        if self._offers_reuse and type(message) is Feedback:
            self._reusable.reported(message)
        self._begin_turn(message, now)
        return frame

    def received_pong(self, now: float) -> None:
        """The peer answered a ping."""
        self._hear(now)

    def suspend(self, now: float) -> None:
        """The server begins to learn: the feedback deadline stands still (SPEC 4.2)."""
        if not self._learning:
            self._learning = True
            if self._reply_due is not None:
                self._reply_left, self._reply_due = self._reply_due - now, None

    def resume(self, now: float) -> None:
        """The server has learnt: the feedback deadline goes on with what was left of it."""
        self._learning = False
        if self._reply_left is not None:
            self._reply_due, self._reply_left = now + self._reply_left, None

    def close_sent(self, now: float) -> None:
        """Our close frame has left: from here on only the close timeout runs. Frames that cross it are still taken."""
        self._closing = True
        self._drop_due = _after(now, self._timeouts.close)

    @property
    def deadline(self) -> float | None:
        """The earliest time at which `tick` has something to say, unless something happens first."""
        if self._closing:
            return self._drop_due
        dues = (self._reply_due, self._ping_due, self._silence_due)
        return min((due for due in dues if due is not None), default=None)

    def tick(self, now: float) -> list[TimerAction]:
        """What to do at `now`, when everything that had arrived by then has been fed."""
        if self._closing:
            return [Drop()] if _passed(self._drop_due, now) else []
        if _passed(self._reply_due, now):
            self._reply_due = None
            return [self._no_reply()]
        if _passed(self._silence_due, now):
            self._silence_due = None
            return [CloseNow(UNRESPONSIVE, f"no answer to pings, not heard of for {now - self._heard:.0f} s")]
        if _passed(self._ping_due, now):
            self._ping_due = _after(now, self._timeouts.ping_interval)
            if self._silence_due is None:
                self._silence_due = _after(now, self._timeouts.ping_timeout)
            return [Ping()]
        return []

    def _no_reply(self) -> CloseNow:
        waits = self._timeouts
        if self.role is Role.SERVER:
            return CloseNow(FEEDBACK_TIMEOUT, f"no feedback within {waits.feedback:g} s of the action")
        if self.turn is Turn.METADATA:
            return CloseNow(METADATA_TIMEOUT, f"no metadata within {waits.metadata:g} s of connecting")
        return CloseNow(ACTION_TIMEOUT, f"no action within {waits.action:g} s of the infer")

    def _hear(self, now: float) -> None:
        self._heard = now
        self._silence_due = None

    def _fail(self, error: RemoteProtocolError) -> NoReturn:
        if self.role is Role.CLIENT and error.close == RESYNC:  # resync is a server's word
            error.close = complain(error.detail)
        self._failure = error
        raise error

    def _refuse_size(self, size: int, error: type[ProtocolError]) -> NoReturn:
        detail = f"frame: expected at most {self._max_frame} bytes, got {size}"
        raise error("1.1 framing/size", detail, TOO_BIG)

    def _check_offered(self, message: Infer, error: type[ProtocolError]) -> None:
        """A feature may be used only if the server lists it (SPEC 10). An unoffered declaration does no harm."""
        if message.reuse is not None and REUSE not in self._features:
            raise error("10.1 reuse/unoffered", f"infer.reuse: the server does not offer {REUSE}")
        if message.spaces is not None and DECLARE not in self._features and error is LocalProtocolError:
            raise error("10.2 spaces/unoffered", f"infer.spaces: the server does not offer {DECLARE}")

    def _complete(self, message: Message, frame_bytes: int) -> Message:
        """Hold the observations of a feedback, and fill them in where the next infer leaves them out; if it is due."""
        if isinstance(message, Infer) and self.turn is Turn.INFER:
            return self._held.complete(message)
        if isinstance(message, Feedback) and self.turn is Turn.FEEDBACK:
            self._held.keep(message, frame_bytes)
        return message

    def _begin_turn(self, message: Message, now: float) -> None:
        """Note what `message` offers, and set the deadline of the reply that it asks for."""
        if type(message) is Metadata:
            self._features, self._offers_reuse = message.features, REUSE in message.features
        seconds = self._reply_within.get(type(message))
        self._reply_due = self._reply_left = None
        if seconds is not None:
            if self._learning:
                self._reply_left = seconds
            else:
                self._reply_due = now + seconds


def _after(now: float, seconds: float | None) -> float | None:
    return None if seconds is None else now + seconds


def _passed(due: float | None, now: float) -> bool:
    return due is not None and now >= due
