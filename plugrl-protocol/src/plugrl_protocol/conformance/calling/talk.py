"""One connection to a server under test: say what is due, and judge what comes back."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrl_protocol.closing import DONE, RESYNC, STOP, Close
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.codec.fields import describe
from plugrl_protocol.conformance.calling.options import ServerOptions
from plugrl_protocol.conformance.calling.script import Script
from plugrl_protocol.conformance.peer.endpoint import Closed, Endpoint, Received, Text
from plugrl_protocol.conformance.report import Report, ViolationError
from plugrl_protocol.connection import DECLARE
from plugrl_protocol.exchange import Exchange, Role
from plugrl_protocol.messages import Action, Feedback, Infer, Metadata, message_from_wire
from plugrl_protocol.spaces import ActionSpace, BoxSpace, Declaration

_GLANCE_SECONDS = 0.1  # what the server says to several connections at once need not arrive at once
_PROGRESS = "4.2 exchange/progress"
_CODEC = (
    "1 layers/websocket",
    "2 envelope/message-type",
    "3 codec/msgpack",
    "3.1 codec/keys",
    "3.2 codec/array",
    "3.3 codec/limits",
)
_ACTION = ("4.2 exchange/alternation", "4.3 action/env-ids", "5.3 action/shape", "5.3 action/finite")


class RunOverError(Exception):
    """The server has ended its run with a stop."""


class ServerClosedError(Exception):
    """The server has closed the connection.

    Attributes:
        close: How.
    """

    def __init__(self, close: Close) -> None:
        super().__init__(str(close))
        self.close = close


class Talk:
    """One connection. What it raises: `ViolationError`, `RemoteProtocolError`, `ServerClosedError`, `RunOverError`.

    Args:
        endpoint: The connection, upgraded.
        report: Where to count and note.
        options: Names, widths and time-outs.

    Attributes:
        script: Makes the messages.
        metadata: What the server said about itself.
    """

    def __init__(self, endpoint: Endpoint, report: Report, options: ServerOptions) -> None:
        self.endpoint = endpoint
        self.script = Script(options)
        self.metadata = Metadata({})
        self._report = report
        self._options = options
        self._exchange = Exchange()
        self._asked: list[int] = []
        self._first = True
        self._horizon: int | None = None

    def greet(self) -> None:
        """Receive the metadata, and send a ping that the server has to answer by and by."""
        try:
            received = self._receive("metadata", "5.1 metadata/sent")
        except ServerClosedError as closed:
            detail = f"expected metadata, the server closed with {closed.close}"
            raise ViolationError("5.1 metadata/sent", detail) from None
        message = message_from_wire(decode(received))
        self._exchange.received(Role.SERVER, message)
        assert isinstance(message, Metadata)  # noqa: S101  # the exchange has checked it
        self.metadata = message
        self._horizon = message.action_horizon
        self._report.passed(*_CODEC, "4.1 exchange/metadata-first", "5.1 metadata/sent", "5.1 metadata/data")
        self.endpoint.ping()

    @property
    def timeout(self) -> float:
        """Seconds to wait for what is due."""
        return self._options.timeout

    @property
    def space(self) -> ActionSpace:
        """The action space that this run seems to have: as the options say, or a box of the declared action_dim."""
        if self._options.space is not None:
            return self._options.space
        return box(self._action_dim() or 1)

    def exchange(self, env_indices: Sequence[int], done: Sequence[bool] | None = None) -> Action:
        """A whole exchange of these envs."""
        action = self.ask(self.script.infer(env_indices))
        self.tell(self.script.feedback(env_indices, done))
        return action

    def ask(self, infer: Infer, **unknown: Any) -> Action:
        """Send an infer, and take its action; `unknown` keys go into the envelope."""
        self.send(infer, **unknown)
        return self.take_action()

    def send(self, infer: Infer, **unknown: Any) -> None:
        """Send an infer; the first one of a connection declares the action space where the server needs it."""
        if self._first and infer.spaces is None and self._must_declare():
            infer = Infer(infer.observation, infer.env_indices, infer.step_ids, infer.reuse, Declaration(self.space))
        self._first = False
        self._exchange.sent(Role.CLIENT, infer)
        self.endpoint.send(encode(infer.to_wire() | unknown))
        self._asked = infer.env_indices.tolist()

    def tell(self, feedback: Feedback, *, held: bool = True, loose: bool = False) -> None:
        """Send a feedback.

        Args:
            feedback: What to send.
            held: False: it may name envs that hold no action.
            loose: Text as a list of str and rewards as f8, which is right too (SPEC 3.4, 5.4).
        """
        if held:
            self._exchange.sent(Role.CLIENT, feedback)
        else:
            self._exchange.received(Role.CLIENT, feedback)
        wire = feedback.to_wire()
        if loose:
            wire["data"]["obs"]["text"] = feedback.observation.text.tolist()
            wire["data"]["rewards"] = feedback.rewards.astype(np.float64)
        self.endpoint.send(encode(wire))
        self._report.exchanges += 1

    def take_action(self) -> Action:
        """Receive and judge the action that is due."""
        wire = decode(self._receive("action", _PROGRESS))
        if isinstance(wire, Mapping):
            self._judge_layout(wire.get("data"))
        message = message_from_wire(wire)
        if isinstance(message, Action) and message.env_ids is None:
            raise ViolationError("4.3 action/env-ids", "action.data.env_ids: missing")
        self._exchange.received(Role.SERVER, message)
        assert isinstance(message, Action)  # noqa: S101  # the exchange has checked it
        self._judge(message.action)
        self._report.passed(*_CODEC, *_ACTION, _PROGRESS)
        return message

    def expect_close(self, expected: Close, why: str, clause: str, wrong_close: str | None = None) -> Close:
        """The server must close with `expected`; returns how it did.

        Args:
            expected: The code, and how the reason begins.
            why: What was done to the server, for the detail.
            clause: What it breaks by going on.
            wrong_close: What it breaks by closing in another way; None: the same.

        Raises:
            ViolationError: It does something else.
        """
        received = self.endpoint.receive(self._options.timeout)
        detail = f"{why}: expected the server to close with {expected}"
        if received is None:
            raise ViolationError(clause, f"{detail}, it has done nothing within {self._options.timeout:g} s")
        if not isinstance(received, Closed):
            what = "a text frame" if isinstance(received, Text) else f"a message of {len(received)} bytes"
            raise ViolationError(clause, f"{detail}, it sent {what}")
        close = received.close
        if close == STOP and expected != STOP:
            raise RunOverError
        if close.code != expected.code or not close.reason.startswith(expected.reason):
            raise ViolationError(wrong_close or clause, f"{detail}, it closed with {received.fault or close}")
        self.endpoint.drop()
        return close

    def expect_resync(self, why: str, clause: str, wrong_close: str | None = None) -> None:
        """`expect_close` with a resync."""
        self.expect_close(RESYNC, why, clause, wrong_close)

    def judge_liveness(self) -> None:
        """Check that the ping of `greet` was answered; by now it must have been.

        Raises:
            ViolationError: It was not.
        """
        if not self.endpoint.pongs:
            raise ViolationError("7.7 closing/liveness", "a ping was not answered")
        self._report.passed("7.7 closing/liveness")

    def stopped(self) -> bool:
        """Whether the server has closed this connection with a stop; a message that has come is thrown away."""
        received = self.endpoint.receive(_GLANCE_SECONDS)
        return isinstance(received, Closed) and received.close == STOP

    def hang_up(self) -> None:
        """Say goodbye."""
        self.endpoint.close(DONE)
        self.endpoint.finish()
        self.endpoint.drop()

    def _receive(self, due: str, clause: str) -> bytes:
        received: Received | None = self.endpoint.receive(self._options.timeout)
        if received is None:
            raise ViolationError(clause, f"expected {due}, nothing came within {self._options.timeout:g} s")
        if isinstance(received, Text):
            raise ViolationError("7.4 closing/text-frame", f"expected {due} in a binary frame, got a text frame")
        if isinstance(received, Closed):
            if received.fault:
                raise ViolationError("1 layers/websocket", f"where {due} was due: {received.fault}")
            raise RunOverError if received.close == STOP else ServerClosedError(received.close)
        return received

    def _judge_layout(self, data: object) -> None:
        """Tell an env-major array before its other lengths are held against it (SPEC 5.3)."""
        action = data.get("action") if isinstance(data, Mapping) else None
        rows, horizon = len(self._asked), self._horizon
        if not isinstance(action, np.ndarray) or action.ndim < 2 or horizon is None or rows == horizon:
            return
        if action.shape[:2] == (rows, horizon):
            detail = f"action.data.action: expected [{horizon},{rows},...], got {describe(action)}: the envs come first"
            raise ViolationError("5.3 action/time-major", detail)
        self._report.passed("5.3 action/time-major")

    def _judge(self, action: np.ndarray) -> None:
        """Hold an action against what the metadata declares, or against the action before."""
        horizon, width = len(action), int(np.prod(action.shape[2:]))
        if self._horizon is not None and horizon != self._horizon:
            detail = f"action.data.action: expected {self._horizon} steps, got {describe(action)}"
            raise ViolationError("5.1 metadata/horizon", detail)
        if self.metadata.action_horizon is not None:
            self._report.passed("5.1 metadata/horizon")
        self._horizon = horizon
        declared = self._action_dim()
        if declared is not None:
            if width != declared:
                detail = f"action.data.action: expected {declared} elements an action, got {describe(action)}"
                raise ViolationError("5.1 metadata/action-dim", detail)
            self._report.passed("5.1 metadata/action-dim")
        if action.dtype.kind == "f" and not np.isfinite(action).all():
            raise ViolationError("5.3 action/finite", "action.data.action: expected finite numbers")

    def _action_dim(self) -> int | None:
        value = self.metadata.data.get("action_dim")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _must_declare(self) -> bool:
        """Whether the server needs to hear the action space (SPEC 10.2)."""
        return DECLARE in self.metadata.features and self._action_dim() is None


def box(width: int) -> BoxSpace:
    """A box of -1..1 in float32."""
    bound = np.ones(width, np.float32)
    return BoxSpace((width,), np.dtype(np.float32), -bound, bound)
