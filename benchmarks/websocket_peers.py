"""Two WebSocket peers that are not ours, to tell what the parts of ours cost.

The stock pair is what anyone would write first: the `websockets` asyncio server and its sync client, with plain
msgpack hooks. `RawClient` is the least a WebSocket client can do: a blocking socket, hand-made frames, plain msgpack.
Driving our server with it shows what the server costs; the difference to the real link is the client's part.

`python benchmarks/websocket_peers.py --shape n8` is only the stock server, as exchange.py starts it.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import os
import socket
import sys
from pathlib import Path

import floors
import measure
import payloads
from payloads import SHAPES, Shape
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

BINARY, CLOSE, PING, PONG = 0x2, 0x8, 0x9, 0xA
FINAL = 0x80
MASKED = 0x80
# XOR with this key changes nothing, which RFC 6455 5.3 would not want of a browser: the cost of masking belongs to
# the real client. The server has to unmask all the same.
NO_MASK = bytes(4)


# --- the stock pair -----------------------------------------------------------------------------


async def serve_until_ended(shape: Shape) -> None:
    """Answer every client on a port that the system chooses."""
    chunk = payloads.action_chunk(shape.envs)

    async def session(connection: ServerConnection) -> None:
        await connection.send(payloads.pack(payloads.metadata()))
        try:
            while True:
                request = payloads.unpack(await connection.recv(decode=False))
                await connection.send(payloads.pack(payloads.action(chunk, request["env_indices"])))
                payloads.unpack(await connection.recv(decode=False))
        except ConnectionClosed:
            return

    async with serve(session, "127.0.0.1", 0, compression=None, max_size=None) as server:
        print(f"listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        await asyncio.get_running_loop().create_future()


class StockClient:
    """`websockets.sync` with plain msgpack."""

    def __init__(self, port: int, shape: Shape) -> None:
        self._open = contextlib.ExitStack()
        opening = connect(f"ws://127.0.0.1:{port}", compression=None, max_size=None, proxy=None)
        self._connection = self._open.enter_context(opening)
        self._infer = payloads.infer(shape)
        self._feedback = payloads.feedback(shape)
        payloads.unpack(self._connection.recv(decode=False))

    def exchange(self) -> None:
        """Send an infer, receive its action, send the feedback."""
        self._connection.send(payloads.pack(self._infer))
        payloads.unpack(self._connection.recv(decode=False))
        self._connection.send(payloads.pack(self._feedback))

    def close(self) -> None:
        """Close with 1000."""
        self._open.close()


def start_stock_server(shape: Shape) -> measure.Process:
    """The server in a process of its own; its output matches floors.READY once it listens."""
    command = [sys.executable, str(Path(__file__).resolve()), "--shape", shape.name]
    return measure.Process(command, name=f"websockets server ({shape.name})")


# --- a client by hand ---------------------------------------------------------------------------


class RawClient:
    """One connection; alternation, closing and pings by hand, nothing checked."""

    def __init__(self, port: int, shape: Shape) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.settimeout(None)
        self._reader = floors.Reader(self._sock)
        self._infer = payloads.infer(shape)
        self._feedback = payloads.feedback(shape)
        self._upgrade(port)
        payloads.unpack(self.receive())

    def exchange(self) -> None:
        """Send an infer, receive its action, send the feedback."""
        self.send(BINARY, payloads.pack(self._infer))
        payloads.unpack(self.receive())
        self.send(BINARY, payloads.pack(self._feedback))

    def close(self) -> None:
        """Send a close frame with 1000, wait for the peer's."""
        self.send(CLOSE, (1000).to_bytes(2, "big"))
        try:
            while True:
                self.receive()
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

    def send(self, opcode: int, payload: bytes) -> None:
        """Send a frame."""
        size = len(payload)
        if size < 126:
            head = bytes((FINAL | opcode, MASKED | size))
        elif size < 1 << 16:
            head = bytes((FINAL | opcode, MASKED | 126)) + size.to_bytes(2, "big")
        else:
            head = bytes((FINAL | opcode, MASKED | 127)) + size.to_bytes(8, "big")
        floors.send_frame(self._sock, head + NO_MASK, payload)

    def receive(self) -> memoryview:
        """The next binary message's payload, valid until the next call."""
        while True:
            first, size = self._reader.take(2)
            if size >= 126:
                size = int.from_bytes(self._reader.take(2 if size == 126 else 8), "big")
            payload = self._reader.take(size)
            if first == FINAL | BINARY:
                return payload
            if first == FINAL | PING:
                self.send(PONG, bytes(payload))
            elif first == FINAL | CLOSE:
                raise ConnectionError(f"closed by the server: {bytes(payload[2:]).decode()}")


def main() -> None:
    """Serve until ended by a signal."""
    parser = argparse.ArgumentParser(description="The websockets asyncio server of the exchange benchmark.")
    parser.add_argument("--shape", choices=SHAPES, default="n1")
    asyncio.run(serve_until_ended(SHAPES[parser.parse_args().shape]))


if __name__ == "__main__":
    main()
