"""Opens a connection: TCP, TLS where asked for, and the WebSocket upgrade, within one deadline (field lesson 6)."""

import errno
import logging
import math
import os
import select
import socket
import ssl
import time
from typing import Any

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response
from websockets.uri import parse_uri

from plugrl_env_client.link.address import Address
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.link.transport import Closed, Transport

# The library's debug level prints every frame, twice; nothing of it is for a user of this client.
_logger = logging.getLogger("plugrl_env_client.websocket")
_logger.setLevel(logging.WARNING)


_UNDER_WAY = (errno.EINPROGRESS, errno.EWOULDBLOCK)
_NAP = 0.5


class ConnectError(Exception):
    """A connection could not be opened; the text says in which phase, and why.

    Attributes:
        final: whether another attempt would fail in the same way (HTTP 401).
    """

    def __init__(self, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


def open_transport(
    address: Address,
    *,
    api_key: str | None,
    max_frame: int,
    until: float,
    timeout: float,
    interrupts: Interrupts,
    spin: float | None = 0.0,
) -> Transport:
    """Connect and upgrade. Neither compression nor a proxy from the environment is used (SPEC 1.1).

    Args:
        address: the server.
        api_key: sent as `Authorization: Api-Key <key>` (SPEC 1.2).
        max_frame: bytes; a larger frame from the server ends the connection with 1009.
        until: the deadline on the clock of `time.monotonic`.
        timeout: seconds that the deadline stands for, named in errors.
        interrupts: what may end the wait.
        spin: as for `Transport`.

    Raises:
        ConnectError: no connection.
        Interrupted: the user wants the client to end.
    """
    sock = _connect(address, until, timeout, interrupts)
    protocol = ClientProtocol(parse_uri(str(address)), max_size=max_frame, logger=_logger)
    transport = Transport(sock, protocol, interrupts, spin=spin)
    try:
        _upgrade(transport, protocol, api_key, until, timeout)
    except BaseException:
        transport.drop()
        raise
    return transport


def remaining(until: float, phase: str, timeout: float) -> float:
    """Seconds left of a deadline.

    Raises:
        ConnectError: none are; the text names the phase.
    """
    left = until - time.monotonic()
    if left <= 0:
        raise ConnectError(f"{phase}: no answer within the --connect-timeout of {timeout:g} s")
    return left


def _connect(address: Address, until: float, timeout: float, interrupts: Interrupts) -> socket.socket:
    try:
        with interrupts.waiting():
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as err:
        raise ConnectError(f"looking up {address.host}: {err.strerror or err}") from err
    failure: OSError | None = None
    for tried, (family, kind, proto, _, where) in enumerate(found):
        sock = socket.socket(family, kind, proto)
        try:
            # An address that swallows packets must not use up what the others need.
            _reach(sock, where, remaining(until, "connecting", timeout) / (len(found) - tried), interrupts)
            sock.settimeout(remaining(until, "connecting", timeout))  # for the handshake of TLS
            with interrupts.waiting():
                return _prepared(sock, address)
        except OSError as err:
            sock.close()
            failure = err
        except BaseException:
            sock.close()
            raise
    if isinstance(failure, TimeoutError):
        remaining(0.0, "connecting", timeout)
    raise ConnectError(f"connecting: {_reason(failure)}")


def _reach(sock: socket.socket, where: Any, seconds: float, interrupts: Interrupts) -> None:
    """Connect a socket, in short waits: in another thread than the main one no signal interrupts them.

    Raises:
        OSError: there is nobody, or no answer in time.
        Interrupted: the user wants the client to end.
    """
    until = time.monotonic() + seconds
    sock.setblocking(False)
    failure = sock.connect_ex(where)
    if failure in _UNDER_WAY:
        poller = select.poll()
        poller.register(sock, select.POLLOUT)
        there: object = None
        while not there:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            with interrupts.waiting():
                there = poller.poll(math.ceil(1000 * min(left, _NAP)))
        failure = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failure:
        raise OSError(failure, os.strerror(failure))


def _prepared(sock: socket.socket, address: Address) -> socket.socket:
    # A feedback has no reply: with Nagle's algorithm every exchange would wait for a delayed acknowledgement, 44 ms.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if address.secure:
        return ssl.create_default_context().wrap_socket(sock, server_hostname=address.host)
    return sock


def _reason(failure: OSError | None) -> str:
    if failure is None:
        return "the name has no address"
    return (failure.strerror or str(failure)).lower()


def _upgrade(transport: Transport, protocol: ClientProtocol, api_key: str | None, until: float, timeout: float) -> None:
    request = protocol.connect()
    if api_key is not None:
        request.headers["Authorization"] = f"Api-Key {api_key}"
    protocol.send_request(request)
    try:
        transport.flush()
        answer = None
        while not isinstance(answer, Response):
            answer = transport.receive(remaining(until, "upgrading to WebSocket", timeout))
    except Closed as err:
        raise ConnectError(f"upgrading to WebSocket: {err}") from err
    if isinstance(protocol.handshake_exc, InvalidStatus):
        raise _refusal(answer, api_key)
    if protocol.handshake_exc is not None:
        raise ConnectError(f"upgrading to WebSocket: {protocol.handshake_exc}")


def _refusal(answer: Response, api_key: str | None) -> ConnectError:
    status = answer.status_code
    if status == 401:
        advice = "the server does not take this --api-key" if api_key else "the server wants an --api-key"
        return ConnectError(f"HTTP 401: {advice} (or PLUGRL_API_KEY)", final=True)
    return ConnectError(f"upgrading to WebSocket: the server answered HTTP {status} {answer.reason_phrase}".rstrip())
