"""The server's end of one WebSocket connection: websockets' sans-I/O core under a thin asyncio protocol.

No task and no queue stands between the socket and the handler: bytes read are parsed and handed over in the same call,
and a message is written in the call that sends it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Protocol, cast

from websockets.exceptions import PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from plugrl_server.serving.connection.websocket.frames import FrameReader

logger = logging.getLogger(__name__)

# What websockets says of its own steps would repeat our lines; "parser failed" and the like still come through.
_core_logger = logging.getLogger(f"{__name__}.core")
_core_logger.setLevel(logging.WARNING)

FRAMES_AT_ONCE = 200
"""Frames handled before others get their turn. A read may hold 175,000 empty ones, which take more than a second."""


class Handler(Protocol):
    """The owner of a connection. Every call comes on the event loop's thread."""

    def opened(self) -> None:
        """The handshake is done; the connection can be used from here on."""
        ...

    def received(self, data: bytes) -> None:
        """A whole binary message came; also between our close frame and the peer's."""
        ...

    def received_text(self) -> None:
        """A text message came."""
        ...

    def received_pong(self) -> None:
        """A pong came."""
        ...

    def closed(self, *, handshake: bool, reason: str) -> None:
        """The connection ended, once; `handshake` tells whether both close frames were exchanged."""
        ...


class WebSocketEndpoint(asyncio.BufferedProtocol):
    """One TCP connection, from the accept to its end.

    Compression is never negotiated (SPEC 1.1) and pings are always answered.

    Args:
        loop: The event loop.
        respond: Answers an HTTP request; status 101 upgrades.
        handle: Makes the handler of an upgraded connection.
        gone: Told when the TCP connection is gone.
        read: Told of every read.
        max_size: Largest message in bytes; a larger one is refused with 1009.
        open_timeout: Longest time until the handshake is done, s.
        close_timeout: Longest time from our last byte to the end of the connection, s.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        respond: Callable[[ServerProtocol, Request], Response],
        handle: Callable[[WebSocketEndpoint], Handler],
        gone: Callable[[WebSocketEndpoint], None],
        read: Callable[[], None] | None = None,
        max_size: int,
        open_timeout: float,
        close_timeout: float,
    ) -> None:
        self._loop = loop
        self._respond = respond
        self._handle = handle
        self._gone = gone
        self._read = read
        self._open_timeout = open_timeout
        self._close_timeout = close_timeout
        self._protocol = ServerProtocol(max_size=max_size, extensions=None, logger=_core_logger)
        self._handler: Handler | None = None
        self._reader = FrameReader(max_size)
        self._fragments: bytearray | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writes_wait = False  # the peer does not read what we write
        self._frames_wait = False  # frames are left of the last read
        self.peer = "unknown"

    # What the handler does ---------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self._protocol.state is State.OPEN

    def send(self, data: bytes) -> None:
        """Send a binary message, in one write."""
        self._protocol.send_binary(data)
        self._flush()

    def ping(self) -> None:
        """Send a ping."""
        self._protocol.send_ping(b"")
        self._flush()

    def close(self, code: int, reason: str) -> None:
        """Send a close frame. Messages that cross it are still received; how long to wait for the answer is yours."""
        if self.is_open:
            self._protocol.send_close(code, reason)
            self._flush()

    def abort(self) -> None:
        """End the TCP connection now."""
        if self._transport is not None:
            self._transport.abort()

    # What asyncio does -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new TCP connection."""
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            # Feedback has no reply: with Nagle's algorithm each exchange would wait for a delayed ACK (40 ms).
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "local"
        self._start_timer(self._open_timeout)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Lend the buffer that the next read fills."""
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        self._reader.added(nbytes)
        self._take_frames()
        if self._read is not None:
            self._read()

    def pause_writing(self) -> None:
        """The peer does not read: take no more of what we answer, such as pings, or the answers fill the memory."""
        self._writes_wait = True
        self._pause_or_resume()

    def resume_writing(self) -> None:
        """The peer has read: go on."""
        self._writes_wait = False
        self._loop.call_soon(self._take_more_frames)
        self._pause_or_resume()

    def eof_received(self) -> bool:
        """The peer ended its side: so do we."""
        self._protocol.receive_eof()
        self._dispatch()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The TCP connection is gone."""
        self._stop_timer()
        self._ended(handshake=False, reason=f"connection lost ({exc})" if exc else "connection lost")
        self._transport = None
        self._gone(self)

    # Inside ------------------------------------------------------------------------------------------------------

    def _take_frames(self) -> None:
        """Handle the frames that were read; if they are many, the rest after everybody else's turn."""
        self._frames_wait = False
        for _ in range(FRAMES_AT_ONCE):
            piece = self._reader.take()
            if piece is None:
                break
            if not piece.is_message:
                self._protocol.receive_data(cast("bytes", piece.data))  # it copies from it, whatever it is
                self._dispatch()
            elif self._handler is not None:
                self._handler.received(cast("bytes", piece.data))
        else:
            self._frames_wait = True
            self._loop.call_soon(self._take_more_frames)
        self._flush()
        self._pause_or_resume()

    def _take_more_frames(self) -> None:
        gone = self._transport is None or self._transport.is_closing()
        if self._frames_wait and not self._writes_wait and not gone:
            self._take_frames()

    def _pause_or_resume(self) -> None:
        """Read only while nothing waits; asyncio does not mind being told twice."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._writes_wait or self._frames_wait:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _dispatch(self) -> None:
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._frame(event)
            elif isinstance(event, Request):
                self._request(event)
        problem = self._protocol.parser_exc
        if problem is not None and self._handler is not None:
            if isinstance(problem, PayloadTooBig):
                logger.warning("%s: message too big for --max-frame-mib: %s", self.peer, problem)
            self._ended(handshake=False, reason=str(problem))
        self._flush()

    def _request(self, request: Request) -> None:
        response = self._respond(self._protocol, request)
        if response.status_code == 101 and not self._reader.begin_frames():
            logger.info("%s: spoke before its handshake was answered", self.peer)
            self.abort()
            return
        self._protocol.send_response(response)
        if response.status_code == 101:
            self._stop_timer()
            self._handler = self._handle(self)
            self._flush()
            self._handler.opened()
        else:
            logger.debug("%s: GET %s: %d", self.peer, request.path, response.status_code)

    def _frame(self, frame: Frame) -> None:
        if self._handler is None:
            return
        if frame.opcode is Opcode.BINARY and frame.fin:
            self._handler.received(cast("bytes", frame.data))
        elif frame.opcode in (Opcode.BINARY, Opcode.CONT):
            self._fragment(self._handler, frame)
        elif frame.opcode is Opcode.TEXT:
            self._handler.received_text()
        elif frame.opcode is Opcode.PONG:
            self._handler.received_pong()
        elif frame.opcode is Opcode.CLOSE:
            self._ended(handshake=True, reason=str(self._protocol.close_rcvd))

    def _fragment(self, handler: Handler, frame: Frame) -> None:
        """Collect a message that came in several frames; the fragments of a text message are dropped."""
        if frame.opcode is Opcode.BINARY:
            self._fragments = bytearray()  # not a list: a fragment of two bytes would take 50 there
        if self._fragments is None:
            return
        self._fragments += frame.data
        if frame.fin:
            message, self._fragments = bytes(self._fragments), None
            handler.received(message)

    def _ended(self, *, handshake: bool, reason: str) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.closed(handshake=handshake, reason=reason)

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if self._transport is None or self._transport.is_closing():
                return
            if data:
                self._transport.write(data)
            else:
                self._linger(self._transport)

    def _linger(self, transport: asyncio.Transport) -> None:
        """End our side; reading goes on for a while, so that what we wrote last is not lost to a reset."""
        if transport.can_write_eof():
            transport.write_eof()
        self._start_timer(self._close_timeout)

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if self._handler is None and self._protocol.state is State.CONNECTING:
            logger.info("%s: no handshake within %g s", self.peer, self._open_timeout)
        self.abort()
