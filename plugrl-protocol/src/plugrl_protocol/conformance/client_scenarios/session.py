"""One connection of a client under test: greet it, give it actions, and judge whatever it sends."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrl_protocol.closing import Close
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.conformance.client_scenarios.grading import StepIds, grade_feedback, grade_infer
from plugrl_protocol.conformance.peer.endpoint import Closed, Endpoint, Text
from plugrl_protocol.conformance.report import Report, ViolationError
from plugrl_protocol.connection import DECLARE, REUSE
from plugrl_protocol.exchange import Exchange, Role
from plugrl_protocol.messages import Action, Feedback, Infer, Message, Metadata, message_from_wire
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import ActionSpace

_PROGRESS = "4.2 exchange/progress"


class LeftError(Exception):
    """The client has ended the connection.

    Attributes:
        close: How.
    """

    def __init__(self, close: Close) -> None:
        super().__init__(str(close))
        self.close = close


class Session:
    """One connection.

    Args:
        endpoint: The connection, upgraded.
        report: Where to count and note.
        features: What to offer.
        timeout: Seconds to wait for a message.
        earlier: The envs of the connection before, if that was closed for a resync.

    Attributes:
        exchanges: How many were completed.
        envs: The envs that have asked for actions.
        space: The action space that the client has declared.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        report: Report,
        *,
        features: frozenset[str],
        timeout: float,
        earlier: frozenset[int] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.exchanges = 0
        self.envs: set[int] = set()
        self.space: ActionSpace | None = None
        self._report = report
        self._features = features
        self._timeout = timeout
        self._earlier = earlier
        self._exchange = Exchange()
        self._step_ids = StepIds()
        self._reusable: set[int] = set()
        self._layout: dict[str, str] = {}
        self._received = 0

    def greet(self, data: Mapping[str, Any]) -> None:
        """Send metadata, and a ping that the client has to answer by and by."""
        self._send(Metadata(data))
        self.endpoint.ping()

    def infer(self) -> Infer:
        """The infer that is due.

        Raises:
            ViolationError: Something else came, or nothing.
            LeftError: The client has closed.
        """
        infer = self._receive()
        assert isinstance(infer, Infer)  # noqa: S101  # the exchange has checked it
        return infer

    def answer(self, infer: Infer, action: np.ndarray) -> None:
        """Send the actions [H,n,...] for an infer."""
        self._send(Action(action, infer.env_indices))

    def feedback(self) -> Feedback:
        """The feedback that is due; it completes an exchange.

        Raises:
            ViolationError: Something else came, or nothing.
            LeftError: The client has closed.
        """
        feedback = self._receive()
        assert isinstance(feedback, Feedback)  # noqa: S101  # the exchange has checked it
        self.exchanges += 1
        self._report.exchanges += 1
        self._report.passed(_PROGRESS)
        return feedback

    def judge_liveness(self) -> None:
        """Check that the ping of `greet` was answered; by now it must have been.

        Raises:
            ViolationError: It was not.
        """
        if not self.endpoint.pongs:
            raise ViolationError("7.7 closing/liveness", f"a ping was not answered in {self.exchanges} exchanges")
        self._report.passed("7.7 closing/liveness")

    def _send(self, message: Message) -> None:
        self._exchange.sent(Role.SERVER, message)
        self.endpoint.send(encode(message.to_wire()))

    def _receive(self) -> Message:
        due = self._exchange.turn.value
        received = self.endpoint.receive(self._timeout)
        if received is None:
            raise ViolationError(_PROGRESS, f"expected the {due}, nothing came within {self._timeout:g} s")
        if isinstance(received, Text):
            raise ViolationError("7.4 closing/text-frame", f"expected the {due} in a binary frame, got a text frame")
        if isinstance(received, Closed):
            if received.fault:
                raise ViolationError("1 layers/websocket", f"where the {due} was due: {received.fault}")
            raise LeftError(received.close)
        wire = decode(received)
        message = message_from_wire(wire)
        self._judge(wire, message)
        self._received += 1
        return message

    def _judge(self, wire: Mapping[str, Any], message: Message) -> None:
        if self._earlier is not None and self._received == 0:
            self._judge_return(message, self._earlier)
        if isinstance(message, Infer):
            self._judge_features(message)
        self._exchange.received(Role.CLIENT, message)
        if isinstance(message, Infer):
            self._step_ids.check(self._report, message, "infer")
            grade_infer(self._report, wire, message)
            self.envs.update(message.env_indices.tolist())
        elif isinstance(message, Feedback):
            if self._exchange.unheld:
                detail = f"feedback.env_indices: env {min(self._exchange.unheld)} holds no action on this connection"
                raise ViolationError("7.6 feedback/held", detail)
            self._step_ids.check(self._report, message, "feedback")
            grade_feedback(self._report, wire, message)
            self._remember(message)

    def _judge_return(self, message: Message, earlier: frozenset[int]) -> None:
        """Check the first message after a resync (SPEC 7.6)."""
        if isinstance(message, Feedback):
            detail = f"after a resync: expected an infer, got a feedback for envs {message.env_indices.tolist()}"
            raise ViolationError("7.6 reconnect/drop-feedback", detail)
        if isinstance(message, Infer):
            missing = sorted(earlier - set(message.env_indices.tolist()))
            if missing:
                detail = (
                    f"after a resync: expected all of envs {sorted(earlier)} in the first infer, {missing} are missing"
                )
                raise ViolationError("7.6 reconnect/all-envs", detail)
            self._report.passed("7.2 closing/reconnect", "7.6 reconnect/drop-feedback", "7.6 reconnect/all-envs")

    def _judge_features(self, infer: Infer) -> None:
        if infer.reuse is not None:
            self._judge_reuse(infer, infer.reuse)
        if infer.spaces is None:
            return
        if DECLARE not in self._features:
            self._report.note(
                "10.2 spaces/unoffered", f"infer.spaces: sent without the offer of {DECLARE}, and ignored"
            )
        else:
            self._report.passed("10.2 spaces/unoffered")
        if self._received:
            detail = "infer.spaces: sent again, and ignored; it belongs in the first infer of a connection"
            self._report.note("10.2 spaces/first-infer", detail)
        else:
            self.space = infer.spaces.action
            self._report.passed("10.2 spaces/first-infer")

    def _judge_reuse(self, infer: Infer, reuse: np.ndarray) -> None:
        if REUSE not in self._features:
            raise ViolationError("10.1 reuse/unoffered", f"infer.reuse: the server does not offer {REUSE}")
        unheld = set(infer.env_indices[reuse].tolist()) - self._reusable
        if unheld:
            detail = f"infer.reuse: expected false for env {min(unheld)}, whose observation the server does not hold"
            raise ViolationError("10.1 reuse/held", f"{detail}: it has no feedback on this connection, or a done one")
        sent = _layout(infer.observation)
        if reuse.any() and sent != self._layout:
            detail = f"infer.data: expected the names, dtypes and widths of the rows reused, {self._layout}, got {sent}"
            raise ViolationError("10.1 reuse/shape", detail)

    def _remember(self, feedback: Feedback) -> None:
        self._step_ids.completed(feedback)
        layout = _layout(feedback.observation)
        if layout != self._layout:  # rows that cannot be batched with the others are not held beside them
            self._reusable.clear()
            self._layout = layout
        done = feedback.terminated | feedback.truncated
        self._reusable.update(feedback.env_indices[~done].tolist())
        self._reusable.difference_update(feedback.env_indices[done].tolist())


def _layout(observation: Observation) -> dict[str, str]:
    """What every row of an observation looks like, by name."""
    named = {f"images.{name}": image for name, image in observation.images.items()}
    named |= {f"states.{name}": state for name, state in observation.states.items()}
    return {name: f"{array.dtype.name}{list(array.shape[1:])}" for name, array in sorted(named.items())}
