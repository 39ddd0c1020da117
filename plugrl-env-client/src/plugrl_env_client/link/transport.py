"""A blocking WebSocket client on one socket: `websockets`' sans-I/O core under a thin shell (SPEC 1).

The library's own blocking client runs a receiver thread per connection, which costs more than everything else in an
exchange. Here a receive is one system call, and so is a send: a whole frame leaves in one piece.

Keepalive: pings are answered whenever this client reads, which it does while it waits for actions and, about once a
second, between env steps (`poll`). While one env step blocks, nothing is read and nothing answered.
"""

import enum
import math
import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from plugrl_protocol.closing import TOO_BIG, Close
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State

from plugrl_env_client.link.frames import FrameSpotter, FrameWriter
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.link.spinning import Spinning, yield_core

ANSWER_SECONDS = 5.0  # how long we wait for the answer to our close frame
LINGER_SECONDS = 2.0  # how long a server surely reads on after its own close frame
STALL_SECONDS = 60.0  # a send that makes no progress for this long has lost its peer
BROKEN = Close(1006)

_BUFFER_BYTES = 1 << 18
_PATIENCE = 1.0  # how long one receive blocks before a caller may look at its deadlines
_SHORT = 0.25  # seconds from which on it does no harm that the kernel's own timeout is many milliseconds late
_DONT_WAIT: int = getattr(socket, "MSG_DONTWAIT", 0)
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Closed(Exception):  # noqa: N818 - how every connection ends, not always an error
    """The connection is over.

    Attributes:
        close: the peer's close frame, or how this side gave up; 1006 where the connection broke without one.
        clean: whether the closing handshake was completed, so that everything sent before it has been read.
    """

    def __init__(self, close: Close, detail: str = "", *, clean: bool = False) -> None:
        super().__init__(detail or f"closed by the server: {close}")
        self.close = close
        self.clean = clean


class Event(enum.Enum):
    """What `receive` returns besides binary messages."""

    TEXT = "a text message"
    PONG = "an answer to a ping"
    NOTHING = "nothing arrived in time"


class Transport:
    """One open socket with a WebSocket on it.

    Args:
        sock: a connected socket, over TLS or not.
        protocol: the sans-I/O core; its handshake may still be to come.
        interrupts: what may end a wait.
        spin: seconds to ask the socket again and again before sleeping until it has something; 0: sleep at once,
            None: while that pays (`Spinning`).

    Attributes:
        is_open: whether messages can be sent, as far as what was read so far tells.
    """

    def __init__(
        self, sock: socket.socket, protocol: ClientProtocol, interrupts: Interrupts, *, spin: float | None = 0.0
    ) -> None:
        # With a timeout of the kernel's own, waiting for an answer is one system call instead of three.
        self._kernel_waits = not isinstance(sock, ssl.SSLSocket) and hasattr(socket, "MSG_DONTWAIT")
        self._kernel_patience = 0.0
        sock.setblocking(self._kernel_waits)
        self._sock = sock
        self._protocol = protocol
        self._interrupts = interrupts
        self._waiting = interrupts.waiting()
        self._spinning = Spinning(spin)
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._writer = FrameWriter()
        self._spotter = FrameSpotter()
        self._events: deque[Frame | Response] = deque()
        self._parts: list[bytes] = []
        self._empty_at = time.monotonic()  # when the receive queue was last known to be empty
        self.is_open = protocol.state is State.OPEN

    def send(self, message: bytes | Sequence[Any]) -> None:
        """Send one binary message.

        Args:
            message: its payload, whole or in pieces (`FrameWriter.write`).

        Raises:
            Closed: the connection is over; the message has been lost, or nobody knows.
        """
        if not self.is_open:  # a close frame came along with what was read last
            self._closed_by_peer()
        try:
            self._send_all(self._writer.write((message,) if isinstance(message, bytes) else message))
        except OSError as err:
            self._broken(err)

    def ping(self) -> None:
        """Send a ping."""
        self._protocol.send_ping(b"")
        self._flush()

    def flush(self) -> None:
        """Send what the core has to say."""
        self._flush()

    def receive(self, patience: float = _PATIENCE) -> bytes | Response | Event:
        """Wait for the next message.

        Args:
            patience: seconds after which NOTHING is returned.

        Raises:
            Closed: the connection is over.
            Interrupted: the user wants the client to end.
        """
        while True:
            while self._events:
                message = self._take(self._events.popleft())
                if message is not None:
                    return message
            if not self.is_open:
                self._check_failure()
            count = self._fill(patience)
            if count is None:
                return Event.NOTHING
            payload = self._spotter.payload(self._buffer[:count])
            if payload is not None and self.is_open:
                return payload
            self._feed(count)

    def poll(self) -> None:
        """Take in what has arrived, without waiting: answers pings and notices a close.

        Raises:
            Closed: the connection is over.
        """
        count = self._read()
        if count is None:
            return
        self._feed(count)
        if any(isinstance(event, Frame) and event.opcode is Opcode.CLOSE for event in self._events):
            self._closed_by_peer()
        self._check_failure()

    def close(self, close: Close) -> bool:
        """Close the connection with a frame of our own and wait for the peer's, at most ANSWER_SECONDS.

        Returns:
            Whether the closing handshake was completed.
        """
        if self._sock.fileno() < 0:  # already over
            return False
        try:
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(close.code, close.reason)
                self.is_open = False
            self._flush()
            clean = self._drain(time.monotonic() + ANSWER_SECONDS)
        except Closed:
            clean = False
        self.drop()
        return clean and self._protocol.close_rcvd is not None

    def drop(self) -> None:
        """Close the socket, whatever state the connection is in."""
        self._sock.close()

    def _take(self, event: Frame | Response) -> bytes | Response | Event | None:
        """One event of the core as a message; None while it is only a part of one."""
        if isinstance(event, Response):
            return event
        if event.opcode is Opcode.BINARY and event.fin:
            return bytes(event.data)
        if event.opcode is Opcode.CLOSE:
            self._closed_by_peer()
        if event.opcode is Opcode.PONG:
            return Event.PONG
        if event.opcode is Opcode.TEXT:
            return Event.TEXT
        if event.opcode in (Opcode.BINARY, Opcode.CONT):
            self._parts.append(bytes(event.data))
            if event.fin:
                message, self._parts = b"".join(self._parts), []
                return message
        return None

    def _fill(self, patience: float) -> int | None:
        """Read once, waiting for `patience` seconds: the number of bytes, None when nothing came."""
        now = time.monotonic()
        spin = self._spinning.granted(now)
        count = None if now - self._empty_at < _PATIENCE and not spin else self._read()
        if count is None:
            with self._waiting:
                count = self._spin_read(now + spin) if spin else None
                if count is None:
                    count = self._wait_and_read(patience)
            if self._spinning.adapts:
                self._spinning.waited(time.monotonic() - now)
        return count

    def _wait_and_read(self, patience: float) -> int | None:
        if not self._kernel_waits or patience < _SHORT:
            return self._read() if self._wait(select.POLLIN, patience) else None
        if patience != self._kernel_patience:
            seconds, rest = divmod(math.ceil(patience * 1e6), 10**6)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, rest))
            self._kernel_patience = patience
        return self._read(0)

    def _read(self, flags: int = _DONT_WAIT) -> int | None:
        """Read what is there: the number of bytes, 0 at the end of the stream, None when there is nothing.

        Without flags, a socket whose waits are the kernel's waits for something to come.
        """
        try:
            return self._sock.recv_into(self._buffer, 0, flags if self._kernel_waits else 0)
        except _NOT_NOW:
            self._empty_at = time.monotonic()
            return None
        except OSError as err:
            self.drop()
            raise Closed(BROKEN, f"connection lost: {err.strerror or err}") from err

    def _spin_read(self, until: float) -> int | None:
        asked = self._empty_at
        while asked < until:
            yield_core()
            count = self._read()
            if count is not None:
                return count
            self._spinning.asked(asked, self._empty_at)
            asked = self._empty_at
        return None

    def _wait(self, event: int, seconds: float) -> bool:
        """Sleep until the socket is ready, at most so long; whether it is."""
        poller = select.poll()
        poller.register(self._sock, event)
        return bool(poller.poll(math.ceil(seconds * 1000)))

    def _feed(self, count: int) -> None:
        """Give the core what was read; nothing read is the end of the stream."""
        if count:
            self._spotter.fed(self._buffer[:count], handshake=self._protocol.state is State.CONNECTING)
            self._protocol.receive_data(bytes(self._buffer[:count]))
        else:
            self._protocol.receive_eof()
        self.is_open = self._protocol.state is State.OPEN
        for event in self._protocol.events_received():
            if isinstance(event, (Frame, Response)):  # a client is never sent a request
                self._events.append(event)
        self._flush()  # pongs, and the answer to a close frame

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            try:
                if data:
                    self._send_all(data)
                else:
                    self._sock.shutdown(socket.SHUT_WR)
            except OSError as err:
                self._broken(err)

    def _send_all(self, data: bytes | memoryview) -> None:
        flags = _DONT_WAIT if self._kernel_waits else 0
        while True:
            try:
                sent = self._sock.send(data, flags)
                if sent == len(data):  # as nearly always
                    return
                data = memoryview(data)[sent:]
            except _NOT_NOW:
                if not self._wait_to_send():
                    raise TimeoutError(f"nothing could be sent for {STALL_SECONDS:g} s") from None

    def _wait_to_send(self) -> bool:
        self._interrupts.stalled = True
        try:
            return self._wait(select.POLLOUT, STALL_SECONDS)
        finally:
            self._interrupts.stalled = False

    def _broken(self, err: OSError) -> None:
        """A send failed: the peer may have said why before it went."""
        self._drain(time.monotonic())
        self.drop()
        said = self._protocol.close_rcvd
        raise Closed(Close(said.code, said.reason) if said else BROKEN, "" if said else f"connection lost: {err}")

    def _closed_by_peer(self) -> None:
        said = self._protocol.close_rcvd
        close = Close(said.code, said.reason) if said is not None else BROKEN
        # A close frame that may have lain here for long: the peer may have stopped reading before our last send.
        late = time.monotonic() - self._empty_at > LINGER_SECONDS
        try:
            self._flush()  # the core's own echo of the close frame
            clean = self._drain(time.monotonic() + ANSWER_SECONDS) and not late
        except Closed:
            clean = False
        self.drop()
        raise Closed(close, clean=clean)

    def _drain(self, until: float) -> bool:
        """Read to the end of the stream, at most until then; whether it ended in order."""
        while True:
            try:
                count = self._read()
            except Closed:
                return False
            if count is None:
                if not self._wait(select.POLLIN, max(until - time.monotonic(), 0.0)):
                    return False
            elif count:
                self._protocol.receive_data(bytes(self._buffer[:count]))
            else:
                self._protocol.receive_eof()
                return True

    def _check_failure(self) -> None:
        """Whether the core has given the connection up: a broken stream, or a frame over the size cap."""
        failed = self._protocol.handshake_exc
        if failed is not None:
            self.drop()
            raise Closed(BROKEN, f"the answer is not a WebSocket's: {failed}")
        error = self._protocol.parser_exc
        if error is None and self._protocol.state is not State.CLOSED:
            return
        sent = self._protocol.close_sent
        if sent is not None:
            self._flush()
        self.drop()
        if sent is not None and sent.code == TOO_BIG.code:
            raise Closed(TOO_BIG, f"the server sent a frame over the size cap: {error}")
        raise Closed(Close(sent.code, sent.reason) if sent else BROKEN, f"connection lost: {error or 'closed'}")
