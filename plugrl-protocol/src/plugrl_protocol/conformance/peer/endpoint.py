"""One end of a WebSocket connection over a blocking socket: the library's sans-I/O core under a thin shell."""

import logging
import socket
import time
from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from plugrl_protocol.closing import Close
from plugrl_protocol.conformance.peer.trace import Trace

MAX_FRAME = 256 * 2**20  # SPEC 1.1
LIBRARY_LOGGER = logging.getLogger("plugrl_protocol.conformance.websocket")
LIBRARY_LOGGER.setLevel(logging.CRITICAL)  # what a peer does wrong is for the report
_CHUNK = 2**18
_GOODBYE_SECONDS = 2.0
_BROKEN = 1006  # RFC 6455 7.4.1: the connection ended without a close frame


@dataclass(frozen=True)
class Text:
    """A text frame; what it says does not matter."""

    payload: bytes


@dataclass(frozen=True)
class Closed:
    """The connection is over.

    Attributes:
        close: What the peer closed with; 1006 if it sent no close frame, 1005 if that had no code.
        fault: What the peer did against RFC 6455, if that is why.
    """

    close: Close
    fault: str | None = None


Received: TypeAlias = bytes | Text | Closed


class Endpoint:
    """One end. Nothing here raises because of what the peer does.

    Args:
        sock: The connected socket; the endpoint closes it.
        protocol: The library's protocol object.
        trace: Where to note what is said.
        us: Our name in the trace.
        peer: The peer's name in the trace.

    Attributes:
        pongs: How many pings the peer has answered.
    """

    def __init__(
        self, sock: socket.socket, protocol: ClientProtocol | ServerProtocol, trace: Trace, *, us: str, peer: str
    ) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pongs = 0
        self.handshake: deque[Request | Response] = deque()
        self.protocol = protocol
        self._socket = sock
        self._trace, self._us, self._peer = trace, us, peer
        self._inbox: deque[bytes | Text] = deque()
        self._parts: list[bytes] = []
        self._opcode = Opcode.BINARY
        self._ended = False
        self._told = False

    @property
    def ended(self) -> bool:
        """Whether the peer has ended the connection; messages that came before may be left to receive."""
        return self._ended

    def send(self, frame: bytes) -> None:
        """Send a binary message; if the connection is over, `receive` tells."""
        self._trace.add(self._us, frame)
        if self.protocol.state is State.OPEN:
            self.protocol.send_binary(frame)
            self.flush()

    def send_text(self, text: str) -> None:
        """Send a text message, as no honest server does."""
        self._trace.add(self._us, f"a text frame, {text!r}")
        if self.protocol.state is State.OPEN:
            self.protocol.send_text(text.encode())
            self.flush()

    def ping(self) -> None:
        """Send a ping; `pongs` counts the answers."""
        if self.protocol.state is State.OPEN:
            self.protocol.send_ping(b"plugrl")
            self.flush()

    def close(self, close: Close) -> None:
        """Send a close frame; what crosses it can still be received."""
        self._trace.add(self._us, f"closes with {close}")
        if self.protocol.state is State.OPEN:
            self.protocol.send_close(close.code, close.reason)
            self.flush()

    def receive(self, timeout: float) -> Received | None:
        """The next message, or how the connection ended; None: nothing came within `timeout` seconds."""
        until = time.monotonic() + timeout
        while not self._inbox and not self._ended:
            left = until - time.monotonic()
            if left < 0 or not self.pump(left):
                return None
        if self._inbox:
            return self._inbox.popleft()
        return self._outcome()

    def finish(self, timeout: float = _GOODBYE_SECONDS) -> Closed | None:
        """Read to the end of the connection, and throw away what comes; None: it did not end within `timeout`."""
        until = time.monotonic() + timeout
        while (received := self.receive(max(0.0, until - time.monotonic()))) is not None:
            if isinstance(received, Closed):
                return received
        return None

    def drop(self) -> None:
        """Close the socket, without a word if nothing has been said."""
        self._ended = True
        self._socket.close()

    def flush(self) -> None:
        """Send what the protocol object has to say."""
        try:
            self._socket.settimeout(_GOODBYE_SECONDS * 15)
            for data in self.protocol.data_to_send():
                if data:
                    self._socket.sendall(data)
                else:  # the library's way to say that nothing more will follow
                    self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # what the peer said before it broke off is still to be read

    def pump(self, timeout: float) -> bool:
        """Wait for data once and take it in; False: nothing came within `timeout` seconds."""
        try:
            self._socket.settimeout(max(timeout, 1e-3))
            data = self._socket.recv(_CHUNK)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        if data:
            self.protocol.receive_data(data)
        else:
            self._ended = True
            self.protocol.receive_eof()
        self._take_events()
        self.flush()
        return True

    def _take_events(self) -> None:
        for event in self.protocol.events_received():
            if isinstance(event, Frame):
                self._take_frame(event)
            else:
                self.handshake.append(event)
        if self.protocol.close_rcvd is not None or self.protocol.parser_exc is not None:
            self._ended = True

    def _take_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PONG:
            self.pongs += 1
        elif frame.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
            if frame.opcode is not Opcode.CONT:
                self._opcode = frame.opcode
            self._parts.append(bytes(frame.data))
            if frame.fin:
                self._take_message(b"".join(self._parts))
                self._parts = []

    def _take_message(self, payload: bytes) -> None:
        if self._opcode is Opcode.TEXT:
            self._trace.add(self._peer, f"a text frame of {len(payload)} bytes")
            self._inbox.append(Text(payload))
        else:
            self._trace.add(self._peer, payload)
            self._inbox.append(payload)

    def _outcome(self) -> Closed:
        self._socket.close()  # nothing more will come; the peer may be waiting for our end
        closed = self._read_outcome()
        if not self._told:
            self._told = True
            self._trace.add(
                self._peer, f"{closed.close}: {closed.fault}" if closed.fault else f"closed, {closed.close}"
            )
        return closed

    def _read_outcome(self) -> Closed:
        received, fault = self.protocol.close_rcvd, self.protocol.parser_exc
        if received is not None:
            return Closed(Close(received.code, received.reason))
        if fault is not None and not isinstance(fault, EOFError):
            return Closed(Close(_BROKEN, "no close frame"), f"{type(fault).__name__}: {fault}")
        return Closed(Close(_BROKEN, "no close frame"))
