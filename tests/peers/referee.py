"""A server that plays a script with a client, one script a connection, and keeps what the scripts return."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from plugrl_protocol.closing import RESYNC, STOP, Close
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.messages import Feedback, Infer, message_from_wire
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

HORIZON = 4
SECONDS = 20.0

_Message = TypeVar("_Message", Infer, Feedback)


class Talk:
    """One connection, in the words of the protocol. What the client sends is read by the project's own parser."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket

    @property
    def headers(self) -> Any:
        """Of the client's handshake."""
        return self.socket.request.headers

    def send(self, message: object) -> None:
        """Any message."""
        self.socket.send(encode(message))

    def metadata(self, **data: object) -> None:
        """The greeting."""
        self.send({"message_type": "metadata", "data": data})

    def message(self, seconds: float = SECONDS) -> Infer | Feedback:
        """Whatever the client sends next."""
        return message_from_wire(decode(self.socket.recv(timeout=seconds)))

    def _expect(self, kind: type[_Message]) -> _Message:
        message = self.message()
        assert isinstance(message, kind), f"expected {kind.__name__}, got {message}"
        return message

    def infer(self) -> Infer:
        """The client's next message, an infer."""
        return self._expect(Infer)

    def feedback(self) -> Feedback:
        """The client's next message, a feedback."""
        return self._expect(Feedback)

    def act(self, infer: Infer, action: np.ndarray | None = None) -> None:
        """Answer an infer, with position-coded actions unless others are given."""
        values = coded(infer.env_indices) if action is None else action
        self.send({"message_type": "action", "data": {"env_ids": infer.env_indices, "action": values}})

    def exchange(self) -> tuple[Infer, Feedback]:
        """A whole exchange."""
        infer = self.infer()
        self.act(infer)
        return infer, self.feedback()

    def close(self, close: Close) -> None:
        """Close from the server's side."""
        self.socket.close(close.code, close.reason)

    def closed(self) -> tuple[int, str]:
        """Wait for the client's close frame: its code and reason. Nothing else may come first."""
        try:
            frame = self.socket.recv(timeout=SECONDS)
        except ConnectionClosed as closed:
            return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (1006, "")
        raise AssertionError(f"expected a close, got {frame!r:.80}")


def coded(env_indices: np.ndarray, horizon: int = HORIZON, width: int = 2, dtype: str = "<f8") -> np.ndarray:
    """Actions [H,n,d] that tell their place: 10000k + 10j + d for step k and env j (SPEC 8.1)."""
    steps, envs, columns = np.meshgrid(np.arange(horizon), env_indices, np.arange(width), indexing="ij")
    return (10_000 * steps + 10 * envs + columns).astype(dtype)


Script = Callable[[Talk], Any]


class Referee:
    """What `referee` yields.

    Attributes:
        port: Where it listens.
        results: What the scripts returned, in the order of the connections.
        errors: What they raised.
    """

    def __init__(self, scripts: tuple[Script, ...]) -> None:
        self._scripts = list(scripts)
        self.port = 0
        self.results: list[Any] = []
        self.errors: list[Exception] = []

    def play(self, socket: ServerConnection) -> None:
        """The next script on a new connection; a connection too many is sent away for good."""
        talk = Talk(socket)
        if not self._scripts:
            self.results.append("one connection too many")
            return talk.close(Close(1008, "the scripts are over"))
        try:
            self.results.append(self._scripts.pop(0)(talk))
        except Exception as error:
            self.errors.append(error)
            talk.close(Close(1008, "the script failed"))
        return None


@contextlib.contextmanager
def referee(*scripts: Script, host: str = "127.0.0.1") -> Iterator[Referee]:
    """Serve the scripts; their errors are raised at the end."""
    judge = Referee(scripts)
    with serve(judge.play, host, 0, compression=None, max_size=None, close_timeout=5) as server:
        judge.port = server.socket.getsockname()[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield judge
        finally:
            server.shutdown()
            thread.join()
    for error in judge.errors:
        raise error


def until_stop(exchanges: int, **metadata: object) -> Script:
    """A script of some exchanges and a stop; returns them."""

    def play(talk: Talk) -> list[tuple[Infer, Feedback]]:
        talk.metadata(**metadata)
        played = [talk.exchange() for _ in range(exchanges)]
        talk.close(STOP)
        return played

    return play


def until_resync(exchanges: int, **metadata: object) -> Script:
    """A script of some exchanges, then an action with a resync right behind it."""

    def play(talk: Talk) -> list[tuple[Infer, Feedback]]:
        talk.metadata(**metadata)
        played = [talk.exchange() for _ in range(exchanges)]
        talk.act(talk.infer())
        talk.close(RESYNC)
        return played

    return play
