"""The socket on which the client checker waits for clients, and the upgrade of each to WebSocket."""

import http
import socket
import time
from dataclasses import dataclass

from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from plugrl_protocol.conformance.peer.endpoint import LIBRARY_LOGGER, MAX_FRAME, Endpoint
from plugrl_protocol.conformance.peer.trace import Trace

_LOOK_SECONDS = 0.05
_HANDSHAKE_SECONDS = 10.0
_PROBES = ("/healthz", "/readyz")  # SPEC 1.3: plain GETs on the same port


@dataclass(frozen=True)
class Guest:
    """A client that has come.

    Attributes:
        endpoint: The connection, upgraded unless there is a fault.
        extensions: The WebSocket extensions that it offered.
        fault: What is wrong with its handshake, or None.
    """

    endpoint: Endpoint
    extensions: str
    fault: str | None


class Listener:
    """Listens on a port; 0 takes any free one.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(self, host: str, port: int) -> None:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self._socket = socket.create_server(address[:2], family=family, backlog=64)
        self.host = host
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def look(self, trace: Trace) -> Guest | None:
        """Wait a moment for a client; None: nobody has come who wants a WebSocket."""
        self._socket.settimeout(_LOOK_SECONDS)
        try:
            sock, _ = self._socket.accept()
        except OSError:
            return None
        protocol = ServerProtocol(max_size=MAX_FRAME, logger=LIBRARY_LOGGER)  # no extensions: no compression (SPEC 1.1)
        endpoint = Endpoint(sock, protocol, trace, us="checker", peer="client")
        guest = _upgrade(endpoint, protocol, trace)
        if guest is None or guest.fault:
            endpoint.drop()
        return guest


def _upgrade(endpoint: Endpoint, protocol: ServerProtocol, trace: Trace) -> Guest | None:
    until = time.monotonic() + _HANDSHAKE_SECONDS
    while not endpoint.handshake and protocol.state is State.CONNECTING and protocol.handshake_exc is None:
        left = until - time.monotonic()
        if left <= 0:
            return Guest(endpoint, "", f"no request within {_HANDSHAKE_SECONDS:g} s of connecting")
        if endpoint.pump(left) and endpoint.ended:
            return None  # somebody who only tried the port
    if not endpoint.handshake:
        return Guest(endpoint, "", f"no HTTP request: {protocol.handshake_exc}")
    request = endpoint.handshake.popleft()
    assert isinstance(request, Request)  # noqa: S101  # a server's protocol object reads nothing else
    if request.path in _PROBES:
        protocol.send_response(protocol.reject(http.HTTPStatus.OK, "ok\n"))
        endpoint.flush()
        return None
    protocol.send_response(protocol.accept(request))
    endpoint.flush()
    fault = protocol.handshake_exc
    trace.add("client", f"connects, {request.path}" if fault is None else f"asks for an upgrade: {fault}")
    offered = ", ".join(request.headers.get_all("Sec-WebSocket-Extensions"))
    return Guest(endpoint, offered, None if fault is None else str(fault))
