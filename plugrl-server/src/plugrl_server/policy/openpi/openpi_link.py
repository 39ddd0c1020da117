"""A blocking connection to an openpi policy server, on the sans-I/O core of `websockets`.

openpi's frames: on connecting the server sends a msgpack map with its metadata. Then, strictly in turn, the client
sends an observation (a map) and the server a map with `actions`; arrays are encoded as ours are (SPEC 3.2 and 9). When
its policy fails the server sends a *text* frame with the traceback, and closes.

There are no threads and no pings: the server answers none while it infers, which may take a minute when it compiles.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import time
from typing import Any

from plugrl_protocol.codec import decode
from plugrl_protocol.errors import RemoteProtocolError
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from plugrl_server.policy.openpi.openpi_url import server_url

_logger = logging.getLogger("plugrl_server.openpi_websocket")
_logger.setLevel(logging.WARNING)  # the library's debug level prints every frame

PAUSE = 0.5
"""Seconds between two attempts to connect."""

READ = 2**20
"""Bytes to read at once."""

SHOWN = 2000
"""Last characters of a server's traceback that are shown."""


class OpenPIError(Exception):
    """The openpi server cannot be asked, or did not answer as one; the text says where and why."""


class ConnectionLostError(OpenPIError):
    """The connection broke or timed out: another may work."""


class OpenPILink:
    """One connection, opened when it is first needed and again after it broke.

    Args:
        host: Host name, address, or a ws:// or wss:// URL.
        port: Port, where the URL names none.
        api_key: Sent as `Authorization: Api-Key <key>`, None for none.
        connect_timeout: Seconds to keep trying to connect.
        answer_timeout: Seconds to wait for an answer.

    Attributes:
        url: The server's.
        metadata: What the server said first; empty before.
    """

    def __init__(
        self, host: str, port: int, *, api_key: str | None, connect_timeout: float, answer_timeout: float
    ) -> None:
        self.url = server_url(host, port)
        self.metadata: dict[str, Any] = {}
        self._api_key, self._connect_timeout, self._answer_timeout = api_key, connect_timeout, answer_timeout
        self._socket: socket.socket | None = None

    def connect(self) -> None:
        """Connect, unless it is connected, and take the metadata.

        Raises:
            OpenPIError: The server cannot be reached, or refuses.
        """
        if self._socket is not None:
            return
        until = time.monotonic() + self._connect_timeout
        while True:
            try:
                self._open(until)
                return
            except (OSError, ConnectionLostError) as error:
                self.close()
                if time.monotonic() + PAUSE >= until:
                    raise OpenPIError(f"no openpi server at {self.url}: {error}") from error
            except BaseException:
                self.close()
                raise
            time.sleep(PAUSE)

    def ask(self, request: bytes) -> Any:
        """Send a request and return the answer, decoded. A connection that broke is opened again, once.

        Raises:
            OpenPIError: The server failed (the text holds what it said), answers nothing, or cannot be reached.
        """
        for last in (False, True):
            self.connect()
            try:
                return self._exchange(request)
            except (OSError, ConnectionLostError) as error:
                self.close()
                if isinstance(error, TimeoutError):
                    seconds = f"{self._answer_timeout:g} s (--policy.answer-timeout)"
                    raise OpenPIError(f"the openpi server at {self.url} did not answer within {seconds}") from error
                if last:
                    raise OpenPIError(f"the openpi server at {self.url} did not answer: {error}") from error
            except BaseException:
                self.close()
                raise
        raise AssertionError  # the second attempt returned or raised

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._socket is None:
            return
        with contextlib.suppress(OSError):
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(1000)
                self._flush()
        self._socket.close()
        self._socket = None

    # One connection ----------------------------------------------------------------------------------------------

    def _open(self, until: float) -> None:
        uri = parse_uri(self.url)
        address = socket.create_connection((uri.host, uri.port), timeout=max(0.1, until - time.monotonic()))
        address.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = _secured(address, uri.host) if uri.secure else address
        self._protocol = ClientProtocol(uri, max_size=None, logger=_logger)
        self._text = False
        self._parts: list[bytes] = []
        request = self._protocol.connect()
        if self._api_key is not None:
            request.headers["Authorization"] = f"Api-Key {self._api_key}"
        self._protocol.send_request(request)
        self._flush()
        metadata = _decoded(self._receive(until), self.url)
        self.metadata = metadata if isinstance(metadata, dict) else {}

    def _exchange(self, request: bytes) -> Any:
        assert self._socket is not None  # noqa: S101 - connect has run
        self._socket.settimeout(self._answer_timeout)
        self._protocol.send_binary(request)
        self._flush()
        return _decoded(self._receive(time.monotonic() + self._answer_timeout), self.url)

    def _receive(self, until: float) -> bytes:
        """Return the next binary message."""
        while True:
            for event in self._protocol.events_received():
                if isinstance(event, Frame) and (message := self._message(event)) is not None:
                    return message
            self._check_open()
            self._read(until)

    def _message(self, frame: Frame) -> bytes | None:
        """Return a binary message once all of it is there; one of text is the server's error."""
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._text, self._parts = frame.opcode is Opcode.TEXT, []
        elif frame.opcode is not Opcode.CONT:
            return None
        self._parts.append(bytes(frame.data))
        if not frame.fin:
            return None
        whole = b"".join(self._parts)
        if self._text:
            said = whole.decode("utf-8", "replace").strip()
            raise OpenPIError(f"the openpi server at {self.url} failed:\n{said[-SHOWN:]}")
        return whole

    def _check_open(self) -> None:
        refused = getattr(self._protocol, "handshake_exc", None)
        if isinstance(refused, InvalidStatus):
            status = refused.response.status_code
            hint = " (--policy.openpi-api-key)" if status in (401, 403) else ""
            raise OpenPIError(f"the openpi server at {self.url} refuses the connection: HTTP {status}{hint}")
        if refused is not None:
            raise OpenPIError(f"{self.url} is no openpi server: {refused}")
        if self._protocol.state in (State.CLOSING, State.CLOSED):
            close = self._protocol.close_rcvd
            raise ConnectionLostError("the connection was closed" + (f": {close.code} {close.reason}" if close else ""))

    def _read(self, until: float) -> None:
        assert self._socket is not None  # noqa: S101 - _open has run
        try:
            self._socket.settimeout(max(1e-3, until - time.monotonic()))
            data = self._socket.recv(READ)
        except TimeoutError:
            raise TimeoutError("no answer in time") from None
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        self._flush()

    def _flush(self) -> None:
        """Send what the core has to say: requests, pongs, the answer to a close."""
        assert self._socket is not None  # noqa: S101 - _open has run
        for data in self._protocol.data_to_send():
            if data:
                self._socket.sendall(data)


def _secured(address: socket.socket, host: str) -> socket.socket:
    return ssl.create_default_context().wrap_socket(address, server_hostname=host)


def _decoded(frame: bytes, url: str) -> Any:
    try:
        return decode(frame)
    except RemoteProtocolError as error:
        raise OpenPIError(f"{url} sent a frame that is not openpi's: {error.detail}") from error
