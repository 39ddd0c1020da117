"""The way in to a server: TCP, the upgrade to WebSocket, and plain GETs."""

import http.client
import socket
import time

from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from plugrl_protocol.conformance.peer.endpoint import LIBRARY_LOGGER, MAX_FRAME, Endpoint
from plugrl_protocol.conformance.peer.trace import Trace


class DialError(Exception):
    """No connection.

    Attributes:
        status: The HTTP status that was answered instead of 101; None: there was no answer.
    """

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


def dial(
    host: str,
    port: int,
    trace: Trace,
    *,
    timeout: float,
    name: str = "checker",
    authorization: str | None = None,
    compression: bool = False,
) -> Endpoint:
    """Connect and upgrade.

    Args:
        host: The server's host.
        port: The server's port.
        trace: Where to note what is said.
        timeout: Seconds for all of it.
        name: This connection's name in the trace.
        authorization: Value of the Authorization header.
        compression: Whether to offer permessage-deflate, which a server must not accept (SPEC 1.1).

    Raises:
        DialError: The server cannot be reached, or does not upgrade.
    """
    until = time.monotonic() + timeout
    sock = connect(host, port, timeout)
    offers = [ClientPerMessageDeflateFactory()] if compression else None
    place = f"[{host}]" if ":" in host else host
    uri = parse_uri(f"ws://{place}:{port}/")
    protocol = ClientProtocol(uri, extensions=offers, max_size=MAX_FRAME, logger=LIBRARY_LOGGER)
    endpoint = Endpoint(sock, protocol, trace, us=name, peer=f"server to {name}")
    request = protocol.connect()
    if authorization is not None:
        request.headers["Authorization"] = authorization
    protocol.send_request(request)
    endpoint.flush()
    while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
        if not endpoint.pump(until - time.monotonic()):
            endpoint.drop()
            raise DialError(f"no answer to the upgrade within {timeout:g} s")
    if protocol.handshake_exc is not None:
        endpoint.drop()
        raise _refusal(endpoint, protocol.handshake_exc)
    return endpoint


def connect(host: str, port: int, timeout: float) -> socket.socket:
    """A TCP connection.

    Raises:
        DialError: The server cannot be reached.
    """
    try:
        return socket.create_connection((host, port), timeout)
    except OSError as error:
        raise DialError(f"cannot connect to {host} port {port}: {error.strerror or error}") from None


def get(host: str, port: int, path: str, timeout: float) -> int | None:
    """The status of a plain GET; None: no HTTP came back."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _refusal(endpoint: Endpoint, error: Exception) -> DialError:
    answer = next((event for event in endpoint.handshake if isinstance(event, Response)), None)
    if answer is None:
        return DialError(f"no upgrade to WebSocket: {error}")
    return DialError(f"no upgrade to WebSocket: HTTP {answer.status_code}: {error}", answer.status_code)
