"""A scripted training server: each connection plays one function, written in the test, over `websockets`' own server.

It shares the protocol's codec with the client but none of the client's socket code.
"""

import contextlib
import dataclasses
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from plugrl_protocol.codec import decode, encode
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

WAIT = 20.0


@pytest.fixture(autouse=True)
def _logs_as_they_were():
    """A test that calls `main` sets up logs, which is for a whole process: undone after it."""
    logger = logging.getLogger("plugrl_env_client")
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


class Peer:
    """The server's end of one connection, with a record of what the client sent."""

    def __init__(self, connection: ServerConnection) -> None:
        self.socket = connection
        self.infers: list[dict[str, Any]] = []
        self.feedbacks: list[dict[str, Any]] = []
        self.over = threading.Event()

    @property
    def headers(self) -> Any:
        return self.socket.request.headers

    def greet(self, **data: Any) -> None:
        self.send({"message_type": "metadata", "data": data})

    def send(self, message: dict[str, Any]) -> None:
        self.socket.send(encode(message))

    def receive(self, kind: str) -> dict[str, Any]:
        message = decode(self.socket.recv(timeout=WAIT))
        assert message["message_type"] == kind, f"expected {kind}, got {message['message_type']}"
        (self.infers if kind == "infer" else self.feedbacks).append(message)
        return message

    def infer(self) -> dict[str, Any]:
        return self.receive("infer")

    def feedback(self) -> dict[str, Any]:
        return self.receive("feedback")

    def act(self, action: np.ndarray) -> None:
        indices = self.infers[-1]["env_indices"]
        self.send({"message_type": "action", "data": {"env_ids": indices, "action": action}})

    def serve(self, make: Callable[[dict[str, Any]], np.ndarray], exchanges: int | None = None) -> None:
        """Answer infers until so many exchanges are complete (None: until the client goes)."""
        done = 0
        while exchanges is None or done < exchanges:
            self.act(make(self.infer()))
            self.feedback()
            done += 1

    @property
    def closed_with(self) -> tuple[int, str] | None:
        """The client's close frame."""
        said = self.socket.protocol.close_rcvd
        return None if said is None else (said.code, said.reason)

    def close(self, code: int, reason: str) -> None:
        """Close, reading on until the client's answer: feedback that crosses is counted."""
        closing = threading.Thread(target=self.socket.close, args=(code, reason))
        closing.start()
        with contextlib.suppress(ConnectionClosed):
            while True:
                message = decode(self.socket.recv(timeout=WAIT))
                if message["message_type"] == "feedback":
                    self.feedbacks.append(message)
        closing.join()

    def stop(self) -> None:
        self.close(1001, "plugrl-server-stop")

    def resync(self) -> None:
        self.close(1001, "plugrl-server-resync")

    def drop(self) -> None:
        """Cut the connection without a close frame."""
        self.socket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.socket.socket.shutdown(socket.SHUT_RDWR)


Script = Callable[[Peer], None]


@dataclasses.dataclass
class FakeServer:
    """A listening server; `peers` holds the connections that came, in order."""

    port: int
    peers: list[Peer]
    errors: list[BaseException]

    def wait(self) -> None:
        """Wait until every script that was started has ended."""
        for peer in self.peers:
            assert peer.over.wait(WAIT)

    @property
    def feedback_rows(self) -> int:
        return sum(len(message["env_indices"]) for peer in self.peers for message in peer.feedbacks)


@pytest.fixture
def fake_server() -> Iterator[Callable[..., FakeServer]]:
    """Start a server that plays `scripts[k]` on connection k, and the last one on every later connection.

    A script's own exception fails the test at the end, except for the client having closed the connection.
    """
    stack = contextlib.ExitStack()
    started: list[FakeServer] = []

    def start(*scripts: Script, **options: Any) -> FakeServer:
        fake = FakeServer(0, [], [])

        def play(connection: ServerConnection) -> None:
            peer = Peer(connection)
            fake.peers.append(peer)
            script = scripts[min(len(fake.peers), len(scripts)) - 1]
            try:
                script(peer)
            except BaseException as err:
                if not isinstance(err, ConnectionClosed):
                    fake.errors.append(err)
            finally:
                peer.over.set()

        server = stack.enter_context(serve(play, "127.0.0.1", 0, compression=None, max_size=None, **options))
        fake.port = server.socket.getsockname()[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        stack.callback(thread.join, 5)
        stack.callback(server.shutdown)
        started.append(fake)
        return fake

    with stack:
        yield start
    for fake in started:
        assert fake.errors == []


def zeros(*shape: int, dtype: Any = np.float32) -> Callable[[dict[str, Any]], np.ndarray]:
    """Actions of `[H, n, *shape]` zeros: `zeros(H, *da)`."""
    horizon, *da = shape
    return lambda infer: np.zeros((horizon, len(infer["env_indices"]), *da), dtype)


@pytest.fixture
def actions() -> Callable[..., Callable[[dict[str, Any]], np.ndarray]]:
    return zeros
