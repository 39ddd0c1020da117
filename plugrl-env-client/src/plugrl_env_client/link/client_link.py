"""The client's end of one connection: messages in and out, deadlines kept, feedback accounted for."""

import logging
import math
import time

import numpy as np
from plugrl_protocol.closing import DONE, Close
from plugrl_protocol.connection import CloseNow, Connection, Ping, Role, Timeouts
from plugrl_protocol.errors import RemoteProtocolError
from plugrl_protocol.messages import Action, Feedback, Infer, Message, Metadata

from plugrl_env_client.link.address import Address
from plugrl_env_client.link.interrupts import Interrupted, Interrupts
from plugrl_env_client.link.opening import ConnectError, open_transport, remaining
from plugrl_env_client.link.transport import Closed, Event, Transport

PROTOCOL_VERSION = 1

_POLL_SECONDS = 1.0  # between two looks at the socket while envs step
_PATIENCE = 1.0  # how long a receive blocks before deadlines are looked at

_logger = logging.getLogger(__name__)


class Link:
    """One connection, opened by `open`, over when a method raises `Closed`.

    Attributes:
        metadata: what the server says about itself.
        feedback_rows: rows of feedback sent on this connection.
        unconfirmed_rows: rows of the last feedback, as long as nothing shows that the server has read it (SPEC 7: an
            action that answers a later infer shows it, and so does a completed closing handshake).
        exchanges: completed ones.
        waited: seconds spent waiting for actions.
    """

    def __init__(self, transport: Transport, connection: Connection, action_timeout: float | None) -> None:
        self._transport = transport
        self._connection = connection
        self._patience = min(_PATIENCE, action_timeout or _PATIENCE)
        self._read_at = self._asked = time.monotonic()
        self.metadata = Metadata({})
        self.feedback_rows = 0
        self.unconfirmed_rows = 0
        self.exchanges = 0
        self.waited = 0.0

    @classmethod
    def open(
        cls,
        address: Address,
        *,
        connect_timeout: float,
        action_timeout: float | None,
        max_frame: int,
        api_key: str | None,
        interrupts: Interrupts,
        spin: float | None = 0.0,
    ) -> "Link":
        """Connect, upgrade and wait for the metadata, all within `connect_timeout` seconds.

        Raises:
            ConnectError: no connection; the text names the phase.
            Closed: the server closed the connection before its metadata.
            Interrupted: the user wants the client to end.
        """
        now = time.monotonic()
        until = now + connect_timeout
        transport = open_transport(
            address,
            api_key=api_key,
            max_frame=max_frame,
            until=until,
            timeout=connect_timeout,
            interrupts=interrupts,
            spin=spin,
        )
        timeouts = Timeouts(metadata=None, action=action_timeout)
        link = cls(transport, Connection(Role.CLIENT, now=now, timeouts=timeouts, max_frame=max_frame), action_timeout)
        try:
            link._greet(until, connect_timeout)
        except (ConnectError, Interrupted):
            transport.close(DONE)
            raise
        return link

    @property
    def features(self) -> frozenset[str]:
        """What the server offers (SPEC 10)."""
        return self._connection.features

    def reusable(self, env_indices: np.ndarray) -> np.ndarray:
        """b1[n]: whose last feedback's observation the server holds (SPEC 10.1)."""
        return self._connection.reusable(env_indices)

    def infer(self, infer: Infer) -> Action:
        """Ask for actions and wait for them.

        Raises:
            Closed: the connection is over.
            Interrupted: the user wants the client to end.
        """
        self.ask(infer)
        action = self.answer()
        assert action is not None  # noqa: S101 - it was waited for
        return action

    def ask(self, infer: Infer) -> None:
        """Ask for actions; `answer` waits for them. The observation may be overwritten as soon as this returns.

        Raises:
            Closed: the connection is over.
        """
        now = time.monotonic()
        frame = self._connection.send_pieces(infer, now)
        self._asked = now
        try:
            self._transport.send(frame)
        except Closed as err:
            raise self._over(err) from err.__cause__

    def answer(self, patience: float | None = None) -> Action | None:
        """Wait for the actions that were asked for.

        Args:
            patience: seconds after which None is returned; the answer may still come, and is asked for again. None: as
                long as it takes.

        Raises:
            Closed: the connection is over.
            Interrupted: the user wants the client to end.
        """
        try:
            message = self._next(patience)
        except Closed as err:
            raise self._over(err) from err.__cause__
        if message is None:
            return None
        assert isinstance(message, Action)  # noqa: S101 - the exchange's table lets nothing else pass
        self._read_at = now = time.monotonic()
        self.waited += now - self._asked
        self.unconfirmed_rows = 0
        return message

    def feedback(self, feedback: Feedback) -> None:
        """Report what became of chunks; there is no answer.

        Raises:
            Closed: the connection is over. Feedback that was counted may have arrived; nobody knows.
        """
        frame = self._connection.send_pieces(feedback, time.monotonic())
        if self._transport.is_open:  # else the close frame came along with the action, and nothing is sent any more
            self.unconfirmed_rows = len(feedback.env_indices)
            self.feedback_rows += self.unconfirmed_rows
        try:
            self._transport.send(frame)
        except Closed as err:
            raise self._over(err) from err.__cause__
        self.exchanges += 1

    def poll(self) -> None:
        """Between env steps: about once a second, answer pings and notice whether the server has closed.

        Raises:
            Closed: it has.
        """
        now = time.monotonic()
        if now - self._read_at < _POLL_SECONDS:
            return
        self._read_at = now
        try:
            self._transport.poll()
        except Closed as err:
            raise self._over(err) from err.__cause__

    def close(self, close: Close = DONE) -> None:
        """End the connection from this side; never raises."""
        if self._transport.close(close):
            self.unconfirmed_rows = 0

    def _over(self, closed: Closed) -> Closed:
        """A completed closing handshake confirms what was sent before it."""
        if closed.clean:
            self.unconfirmed_rows = 0
        return closed

    def _greet(self, until: float, timeout: float) -> None:
        frame: object = Event.NOTHING
        try:
            while frame in (Event.NOTHING, Event.PONG):
                frame = self._transport.receive(remaining(until, "waiting for the metadata", timeout))
            message = self._read(frame)
        except Closed as err:
            raise Closed(err.close, f"waiting for the metadata: {err}", clean=err.clean) from err.__cause__
        assert isinstance(message, Metadata)  # noqa: S101 - the exchange's table lets nothing else pass
        self.metadata = message
        version = message.protocol_version
        if version is not None and version > PROTOCOL_VERSION:
            _logger.warning(
                "the server speaks protocol version %d, this client %d: going on", version, PROTOCOL_VERSION
            )

    def _next(self, seconds: float | None) -> Message | None:
        """The next message, with pings sent and deadlines kept while it does not come; None: not in so many seconds."""
        until = math.inf if seconds is None else time.monotonic() + seconds
        patience = self._patience if seconds is None else min(seconds, self._patience)
        while True:
            frame = self._transport.receive(patience)
            if isinstance(frame, bytes) or frame is Event.TEXT:
                return self._read(frame)
            if frame is Event.PONG:
                self._connection.received_pong(time.monotonic())
                continue
            patience = min(self._keep_deadlines(), until - time.monotonic())
            if patience <= 0:
                return None

    def _keep_deadlines(self) -> float:
        """Do what is due; returns how long to wait until something else may be."""
        now = time.monotonic()
        for due in self._connection.tick(now):
            if isinstance(due, Ping):
                self._transport.ping()
            elif isinstance(due, CloseNow):
                self._transport.close(due.close)
                raise Closed(due.close, due.detail)
        deadline = self._connection.deadline
        return _PATIENCE if deadline is None else min(max(deadline - now, 0.001), _PATIENCE)

    def _read(self, frame: object) -> Message:
        now = time.monotonic()
        try:
            if isinstance(frame, bytes):
                return self._connection.receive(frame, now)
            self._connection.receive_text(now)
        except RemoteProtocolError as err:
            self._transport.close(err.close)
            raise Closed(err.close, f"the server broke the protocol: {err.detail} (SPEC {err.clause})") from err
