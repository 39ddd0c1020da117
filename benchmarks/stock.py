"""What anyone would write first: the `websockets` asyncio server and its sync client, with plain msgpack hooks.

python benchmarks/stock.py --shape n8   # only the server; used by exchange.py
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

import measure
import payloads
from payloads import SHAPES, Shape
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect


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


def start_server(shape: Shape) -> measure.Process:
    """The server in a process of its own; its output matches floors.READY once it listens."""
    command = [sys.executable, str(Path(__file__).resolve()), "--shape", shape.name]
    return measure.Process(command, name=f"websockets server ({shape.name})")


def main() -> None:
    """Serve until ended by a signal."""
    parser = argparse.ArgumentParser(description="The websockets asyncio server of the exchange benchmark.")
    parser.add_argument("--shape", choices=SHAPES, default="n1")
    asyncio.run(serve_until_ended(SHAPES[parser.parse_args().shape]))


if __name__ == "__main__":
    main()
