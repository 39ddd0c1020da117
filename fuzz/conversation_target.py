"""A conversation: one end, and whatever its peer sends, at every turn. The bytes are a script.

A script is one byte of `Options`, and then frames of the peer, each after two bytes: a bit that says whether our end
first sends all that is due from it, and the frame's length in 15 bits. A frame that is cut short is taken as it is.

Whatever the script is, these must hold: the end takes exactly the message that is due, or refuses with the one typed
error; after a refusal nothing is taken or sent any more; and both know whose turn it is.
"""
# ruff: noqa: S101 - an assertion is how a finding shows

import enum
import struct
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from frame_target import check_message, check_refusal
from plugrl_protocol.connection import DECLARE, REUSE, Connection, Role, Turn
from plugrl_protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from plugrl_protocol.messages import Action, Feedback, Infer, Message, Metadata
from plugrl_protocol.observation import Observation

_FIRST = 0x8000  # of the two bytes before a frame: our end sends first
LONGEST = _FIRST - 1
_ENVS = (0, 1, 7)
_DUE: dict[Turn, tuple[Role, type[Message], Turn]] = {  # a second opinion on exchange.RULES
    Turn.METADATA: (Role.SERVER, Metadata, Turn.INFER),
    Turn.INFER: (Role.CLIENT, Infer, Turn.ACTION),
    Turn.ACTION: (Role.SERVER, Action, Turn.FEEDBACK),
    Turn.FEEDBACK: (Role.CLIENT, Feedback, Turn.INFER),
}


class Options(enum.IntFlag):
    """The first byte of a script."""

    CLIENT = 1  # our end is the client; else the server
    REUSE = 2  # as a server, our end offers reuse-feedback-obs
    DECLARE = 4  # and declare-spaces
    SMALL = 8  # our end takes frames of at most 512 bytes


def write_script(options: Options, frames: Sequence[tuple[bool, bytes]]) -> bytes:
    """The script of a conversation: for each frame of the peer, whether our end sends first."""
    parts = [bytes([options])]
    for first, frame in frames:
        parts += [struct.pack(">H", (_FIRST if first else 0) | len(frame)), frame]
    return b"".join(parts)


def read_script(script: bytes) -> tuple[Options, list[tuple[bool, bytes]]]:
    """What `write_script` was given; any bytes are a script."""
    return Options(script[0] & 15 if script else 0), list(_frames(script))


def _frames(script: bytes) -> Iterator[tuple[bool, bytes]]:
    at = 1
    while at + 2 <= len(script):
        (header,) = struct.unpack_from(">H", script, at)
        start, at = at + 2, at + 2 + (header & LONGEST)
        yield bool(header & _FIRST), script[start:at]


def run(script: bytes) -> str:
    """Play a conversation.

    Returns:
        How it ended: the clause of the refusal and the turn in which it came, or the turn that was reached.

    Raises:
        AssertionError: A promise was not kept.
    """
    options, frames = read_script(script)
    end = End(options)
    for first, frame in frames:
        if first:
            end.send_what_is_due()
        clause = end.take(frame)
        if clause:
            return f"{end.turn.value}: {clause}"
    return f"{end.turn.value}: open"


class End:
    """Our end, and what it should be in, kept apart."""

    def __init__(self, options: Options) -> None:
        self.role = Role.CLIENT if options & Options.CLIENT else Role.SERVER
        self.connection = Connection(self.role, now=0.0, max_frame=512 if options & Options.SMALL else 2**20)
        self.turn = Turn.METADATA
        self._features = [name for flag, name in ((Options.REUSE, REUSE), (Options.DECLARE, DECLARE)) if options & flag]
        self._asked: list[int] = []
        self._holders: set[int] = set()

    def send_what_is_due(self) -> None:
        """Send honest messages until it is the peer's turn, or one is too large for a small `max_frame`."""
        while _DUE[self.turn][0] is self.role:
            _, kind, then = _DUE[self.turn]
            message = self._make(kind)
            error = refusal(lambda: self.connection.send(message, 0.0))  # noqa: B023 - called at once
            if error is not None:
                assert isinstance(error, LocalProtocolError), error
                assert error.clause == "1.1 framing/size", error
                return
            self._note(message)
            self.turn = then
            self._compare()

    def take(self, frame: bytes) -> str | None:
        """Receive a frame; returns the clause of its refusal."""
        sender, kind, then = _DUE[self.turn]
        try:
            message = self.connection.receive(frame, 0.0)
        except RemoteProtocolError as error:
            self._check_refused(error, frame)
            return error.clause
        assert sender is not self.role, f"{type(message).__name__} was taken when it was our turn"
        assert type(message) is kind, f"{type(message).__name__} was taken, {kind.__name__} was due"
        check_message(message)
        self._note(message)
        self.turn = then
        self._compare()
        return None

    def _check_refused(self, error: RemoteProtocolError, frame: bytes) -> None:
        check_refusal(error)
        codes = (1002, 1009) if self.role is Role.CLIENT else (1001, 1009)
        assert error.close.code in codes, error.close
        self._compare()
        assert refusal(lambda: self.connection.receive(frame, 1.0)) is error, "not the same refusal again"
        message = self._make(_DUE[self.turn][1])
        assert refusal(lambda: self.connection.send(message, 1.0)), "something could be sent after a refusal"

    def _compare(self) -> None:
        assert self.connection.turn is self.turn, f"{self.connection.turn} instead of {self.turn}"
        assert self.connection.action_pending == (self.turn is Turn.ACTION)
        assert all(self.connection.holding(env) == (env in self._holders) for env in {*_ENVS, *self._asked})

    def _note(self, message: Message) -> None:
        """Follow who holds an action."""
        if isinstance(message, Infer):
            self._asked = message.env_indices.tolist()
            if self.role is Role.SERVER:
                assert message.reuse is None or REUSE not in self._features, "an infer was not completed"
        elif isinstance(message, Action):
            self._holders.update(self._asked)
        elif isinstance(message, Feedback):
            envs = set(message.env_indices.tolist())
            if self.role is Role.SERVER:
                assert self.connection.unheld == envs - self._holders
            self._holders -= envs

    def _make(self, kind: type[Message]) -> Message:
        if kind is Metadata:
            return Metadata({"features": self._features})
        if kind is Action:
            return Action(np.zeros((2, len(self._asked), 1), np.float32), np.array(self._asked, np.int64))
        envs = np.array(_ENVS if kind is Infer else sorted(self._holders)[:3] or [0], np.int64)
        rows, zeros = len(envs), np.zeros(len(envs), np.int64)
        observation = Observation({}, {"obs": np.zeros((rows, 2))}, [""] * rows)
        if kind is Infer:
            return Infer(observation, envs, zeros)
        flags = np.zeros(rows, np.bool_)
        return Feedback(envs, zeros, observation, np.zeros(rows, np.float32), flags, flags, {})


def refusal(call: Callable[[], object]) -> ProtocolError | None:
    """The protocol error that a call ends in, if any."""
    try:
        call()
    except ProtocolError as error:
        return error
    return None
