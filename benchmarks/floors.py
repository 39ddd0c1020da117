"""The two floors: what one exchange costs on this machine when nothing but the work itself is done.

*bytes*: raw TCP, length-prefixed canned frames, no codec: what the kernel and two processes cost.
*codec*: the same, and both ends really pack and unpack every message with plain msgpack and ndarray hooks: the
honest minimal exchange, which PlugRL's targets are multiples of.

Both use blocking sockets, TCP_NODELAY, no sleeps and no WebSocket, with the server in a process of its own.

    python benchmarks/floors.py                        # measure both
    python benchmarks/floors.py --serve codec --shape n8   # only the server; used by the benchmarks
"""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import measure
import numpy as np
import payloads
from payloads import SHAPES, Shape

READY = r"listening on 127\.0\.0\.1:(\d+)"
LENGTH = struct.Struct("!I")
SMALL = 16 * 1024  # below it, joining prefix and body is cheaper than two buffers in one call
WARM_UP = 50


class Client(Protocol):
    """One connected contender."""

    def exchange(self) -> None:
        """Send an infer, receive its action, send the feedback."""

    def close(self) -> None:
        """End the connection properly."""


# --- the wire of both floors ---------------------------------------------------------------------


class Reader:
    """Buffered reading from a blocking socket: few system calls, one buffer that is reused."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._view = memoryview(bytearray(1 << 16))
        self._start = self._end = 0

    def take(self, count: int) -> memoryview:
        """The next `count` bytes, valid until the next call.

        Raises:
            ConnectionError: the peer has closed.
        """
        if self._start == self._end:
            self._start = self._end = 0
        if self._start + count > len(self._view):
            self._make_room(count)
        while self._end - self._start < count:
            received = self._sock.recv_into(self._view[self._end :])
            if not received:
                raise ConnectionError("the peer has closed")
            self._end += received
        first, self._start = self._start, self._start + count
        return self._view[first : self._start]

    def _make_room(self, count: int) -> None:
        rest = bytes(self._view[self._start : self._end])
        if count > len(self._view):
            self._view = memoryview(bytearray(2 * count))
        self._view[: len(rest)] = rest
        self._start, self._end = 0, len(rest)


def send_frame(sock: socket.socket, head: bytes, body: bytes) -> None:
    """Write a frame with a single system call where the kernel takes it all."""
    if len(body) < SMALL:
        sock.sendall(head + body)
        return
    sent = sock.sendmsg((head, body)) - len(head)
    if sent < len(body):
        sock.sendall(memoryview(body)[sent:])


class Framed:
    """Length-prefixed frames on a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(None)  # a socket with a timeout asks the kernel twice per call
        self._sock = sock
        self._reader = Reader(sock)

    def send(self, body: bytes) -> None:
        """Write one frame."""
        send_frame(self._sock, LENGTH.pack(len(body)), body)

    def receive(self) -> memoryview:
        """The next frame, valid until the next call; `ConnectionError` when there is none."""
        (length,) = LENGTH.unpack(self._reader.take(LENGTH.size))
        return self._reader.take(length)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


# --- servers -------------------------------------------------------------------------------------


def serve_bytes(link: Framed, shape: Shape) -> None:
    """Answer every infer with the same canned frame, without looking at anything."""
    rows = np.arange(shape.envs, dtype=np.int64)
    answer = payloads.pack(payloads.action(payloads.action_chunk(shape.envs), rows))
    link.send(payloads.pack(payloads.metadata()))
    while True:
        link.receive()
        link.send(answer)
        link.receive()


def serve_codec(link: Framed, shape: Shape) -> None:
    """Decode every infer, encode its action, decode the feedback."""
    chunk = payloads.action_chunk(shape.envs)
    link.send(payloads.pack(payloads.metadata()))
    while True:
        request = payloads.unpack(link.receive())
        link.send(payloads.pack(payloads.action(chunk, request["env_indices"])))
        payloads.unpack(link.receive())


SERVERS: dict[str, Callable[[Framed, Shape], None]] = {"bytes": serve_bytes, "codec": serve_codec}


def serve(kind: str, shape: Shape) -> None:
    """Serve one client after the other on a port that the system chooses, until ended by a signal."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", flush=True)
        while True:
            sock, _ = listener.accept()
            with sock:
                try:
                    SERVERS[kind](Framed(sock), shape)
                except ConnectionError:
                    continue


# --- clients -------------------------------------------------------------------------------------


class BytesClient:
    """Sends canned frames and does not look at what comes back."""

    def __init__(self, port: int, shape: Shape) -> None:
        self._link = Framed(socket.create_connection(("127.0.0.1", port), timeout=10))
        self._infer = payloads.pack(payloads.infer(shape))
        self._feedback = payloads.pack(payloads.feedback(shape))
        self._link.receive()

    def exchange(self) -> None:
        """See `Client`."""
        self._link.send(self._infer)
        self._link.receive()
        self._link.send(self._feedback)

    def close(self) -> None:
        """See `Client`."""
        self._link.close()


class CodecClient:
    """Packs and unpacks every message."""

    def __init__(self, port: int, shape: Shape) -> None:
        self._link = Framed(socket.create_connection(("127.0.0.1", port), timeout=10))
        self._infer = payloads.infer(shape)
        self._feedback = payloads.feedback(shape)
        payloads.unpack(self._link.receive())

    def exchange(self) -> None:
        """See `Client`."""
        self._link.send(payloads.pack(self._infer))
        payloads.unpack(self._link.receive())
        self._link.send(payloads.pack(self._feedback))

    def close(self) -> None:
        """See `Client`."""
        self._link.close()


CLIENTS: dict[str, Callable[[int, Shape], Client]] = {"bytes": BytesClient, "codec": CodecClient}


# --- measuring -----------------------------------------------------------------------------------


def start_server(kind: str, shape: Shape) -> measure.Process:
    """A floor's server in a process of its own; its output matches READY once it listens."""
    command = [sys.executable, str(Path(__file__).resolve()), "--serve", kind, "--shape", shape.name]
    return measure.Process(command, name=f"{kind} floor ({shape.name})")


def warm_up(client: Client) -> None:
    """Exchanges that do not count: caches, buffers, and a server that is slower at first."""
    for _ in range(WARM_UP):
        client.exchange()


def timed_block(client: Client, count: int) -> measure.Durations:
    """`count` exchanges back to back; each lasts from its infer to the next one's."""
    stamps = np.empty(count + 1, dtype=np.int64)
    stamps[0] = time.perf_counter_ns()
    for i in range(1, count + 1):
        client.exchange()
        stamps[i] = time.perf_counter_ns()
    return measure.Durations.of(stamps)


def measure_floor(kind: str, shape: Shape, count: int) -> measure.Durations:
    """One block against a fresh server."""
    with start_server(kind, shape) as server:
        port = int(server.wait_for(READY, 30)[1])
        client = CLIENTS[kind](port, shape)
        try:
            warm_up(client)
            return timed_block(client, count)
        finally:
            client.close()


def main(argv: list[str] | None = None) -> int:
    """Measure both floors, or be one floor's server."""
    parser = argparse.ArgumentParser(description="The two floors of the exchange benchmark.")
    parser.add_argument("--serve", choices=SERVERS, help="be this floor's server until ended")
    parser.add_argument("--shape", choices=SHAPES, default="n1", help="the size that --serve answers (default n1)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the exchanges")
    measure.add_report_options(parser, time_limit=120)
    args = parser.parse_args(argv)
    if args.serve:
        serve(args.serve, SHAPES[args.shape])
    return measure.carry_out("floors", args, {"quick": args.quick}, lambda: results(args.quick), print_lines)


def results(quick: bool) -> dict[str, Any]:
    """Both floors of every shape."""
    shapes: dict[str, dict[str, dict[str, float]]] = {}
    for shape in SHAPES.values():
        for kind in SERVERS:
            found = measure_floor(kind, shape, shape.exchanges // 10 if quick else shape.exchanges)
            shapes.setdefault(shape.name, {})[kind] = found.to_json()
    return {"shapes": shapes}


def print_lines(content: dict[str, Any]) -> None:
    """One line for each shape and floor."""
    for shape, kinds in content["shapes"].items():
        for kind, found in kinds.items():
            mean, p50, p99 = (found[key] for key in ("mean_us", "p50_us", "p99_us"))
            print(f"{shape:6} {kind:6} mean {mean:8.1f} us  p50 {p50:8.1f}  p99 {p99:8.1f}")


if __name__ == "__main__":
    measure.run_script(main)
