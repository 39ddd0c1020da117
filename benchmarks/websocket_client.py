"""The least a WebSocket client can do: a blocking socket, hand-made frames, plain msgpack.

Driving our server with it shows what the server costs; the difference to the real link is the client's part.
"""

from __future__ import annotations

import base64
import os
import socket

import floors
import payloads
from payloads import Message, Shape

BINARY, CLOSE, PING, PONG = 0x2, 0x8, 0x9, 0xA
FINAL = 0x80
MASKED = 0x80
# XOR with this key changes nothing, which RFC 6455 5.3 would not want of a browser: the cost of masking belongs to
# the real client. The server has to unmask all the same.
NO_MASK = bytes(4)


class RawClient:
    """One connection; alternation, closing and pings by hand, nothing checked."""

    def __init__(self, port: int, shape: Shape, spaces: Message | None = None) -> None:
        """Connect and read the metadata.

        Args:
            port: of a server on this computer.
            shape: what to exchange.
            spaces: the action space to declare with the first infer (SPEC.md 10.2), None for none.
        """
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.settimeout(None)
        self._reader = floors.Reader(self._sock)
        self._infer = payloads.infer(shape)
        self._feedback = payloads.feedback(shape)
        self._spaces = spaces
        self._upgrade(port)
        payloads.unpack(self._receive())

    def exchange(self) -> None:
        """Send an infer, receive its action, send the feedback."""
        request = self._infer
        if self._spaces is not None:
            request, self._spaces = {**request, "spaces": self._spaces}, None
        self._send(BINARY, payloads.pack(request))
        payloads.unpack(self._receive())
        self._send(BINARY, payloads.pack(self._feedback))

    def close(self) -> None:
        """Send a close frame with 1000, wait for the peer's."""
        self._send(CLOSE, (1000).to_bytes(2, "big"))
        try:
            while True:
                self._receive()
        except ConnectionError:
            self._sock.close()

    def _upgrade(self, port: int) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            "GET / HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        ]
        self._sock.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = bytearray()
        while not answer.endswith(b"\r\n\r\n"):
            answer += self._reader.take(1)
        status = answer.partition(b"\r\n")[0].decode()
        if " 101 " not in status:
            raise ConnectionError(f"no WebSocket: {status}")

    def _send(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = bytes((FINAL | opcode, MASKED | size))
        elif size < 1 << 16:
            head = bytes((FINAL | opcode, MASKED | 126)) + size.to_bytes(2, "big")
        else:
            head = bytes((FINAL | opcode, MASKED | 127)) + size.to_bytes(8, "big")
        floors.send_frame(self._sock, head + NO_MASK, payload)

    def _receive(self) -> memoryview:
        """The next binary message's payload, valid until the next call."""
        while True:
            first, size = self._reader.take(2)
            if size >= 126:
                size = int.from_bytes(self._reader.take(2 if size == 126 else 8), "big")
            payload = self._reader.take(size)
            if first == FINAL | BINARY:
                return payload
            if first == FINAL | PING:
                self._send(PONG, bytes(payload))
            elif first == FINAL | CLOSE:
                raise ConnectionError(f"closed by the server: {bytes(payload[2:]).decode()}")
