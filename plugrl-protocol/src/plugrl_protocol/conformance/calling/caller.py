"""Opens the connections of a phase, and closes what it has opened."""

import socket

from plugrl_protocol.conformance.calling.options import ServerOptions
from plugrl_protocol.conformance.calling.talk import RunOverError, Talk
from plugrl_protocol.conformance.peer.dialing import DialError, connect, dial, get
from plugrl_protocol.conformance.peer.endpoint import Endpoint
from plugrl_protocol.conformance.peer.trace import Trace
from plugrl_protocol.conformance.report import Report, ViolationError


class KeyNeededError(Exception):
    """The server wants an API key, and the user has given none, or another."""


class Caller:
    """Everything that one phase needs.

    Args:
        options: What to do.
        report: Where to count and note.

    Attributes:
        options: What to do.
        report: Where to count and note.
        trace: What was said in this phase.
        features: What the server has offered.
    """

    def __init__(self, options: ServerOptions, report: Report) -> None:
        self.options = options
        self.report = report
        self.trace = Trace()
        self.features: frozenset[str] = frozenset()
        self._talks: list[Talk] = []
        self._endpoints: list[Endpoint] = []
        self._sockets: list[socket.socket] = []

    def call(self, name: str) -> Talk:
        """Connect, and receive the metadata.

        Args:
            name: The connection's name in the trace.

        Raises:
            DialError: The server cannot be reached.
            KeyNeededError: It wants another API key.
            ViolationError: It does not send metadata.
            RunOverError: It has ended its run, as another connection shows.
        """
        try:
            return self._call(name)
        except (DialError, ViolationError):
            if any(talk.stopped() for talk in self._talks):
                raise RunOverError from None
            raise

    def _call(self, name: str) -> Talk:
        key = self.options.api_key
        try:
            endpoint = self.dial(name, authorization=None if key is None else f"Api-Key {key}")
        except DialError as error:
            if error.status != 401:
                raise
            raise KeyNeededError("the server answers HTTP 401: give its key by --api-key") from None
        return self.take(endpoint)

    def take(self, endpoint: Endpoint) -> Talk:
        """A talk over a connection, whose metadata is received first."""
        talk = Talk(endpoint, self.report, self.options)
        self._talks.append(talk)
        talk.greet()
        self.features = talk.metadata.features
        return talk

    def dial(self, name: str, *, authorization: str | None = None, compression: bool = False) -> Endpoint:
        """Connect and upgrade; see `dialing.dial`."""
        options = self.options
        endpoint = dial(
            options.host,
            options.port,
            self.trace,
            timeout=options.timeout,
            name=name,
            authorization=authorization,
            compression=compression,
        )
        self._endpoints.append(endpoint)
        return endpoint

    def connect_only(self) -> None:
        """Open a TCP connection that never says anything."""
        self._sockets.append(connect(self.options.host, self.options.port, self.options.timeout))

    def get(self, path: str) -> int | None:
        """The status of a plain GET; None: no HTTP came back."""
        return get(self.options.host, self.options.port, path, self.options.timeout)

    def hang_up(self) -> None:
        """Close all connections."""
        for sock in self._sockets:
            sock.close()
        for talk in self._talks:
            talk.hang_up()
        for endpoint in self._endpoints:
            endpoint.drop()
