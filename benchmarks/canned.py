"""A server that answers every infer with the same frame, and the least clients that can talk to it.

The server decodes nothing, so that what is left of an exchange is the client's. All clients know neither chunks nor
episodes nor reconnects:

- `MinimalClient`: a blocking socket under `websockets`' sans-I/O core, and `plugrl_protocol`'s codec. The shortest
  client that keeps RFC 6455, and what anyone would write first.
- `RawClient`: frames by hand, masked with zeros, and not one check: what no client can go below.
- `CoreClient`: the protocol's own messages and rules of the exchange on top of that, and real masks: the least that a
  client of ours may do.

`python benchmarks/canned.py --shape n8` is only the server, as env_client.py starts it.
"""

from __future__ import annotations

import abc
import argparse
import base64
import hashlib
import socket
import sys
import time
from collections import deque
from pathlib import Path

import floors
import measure
import numpy as np
import payloads
import websocket_peers
from payloads import SHAPES, Shape
from plugrl_env_client.envs.base_env import BaseEnv, Observation, Step
from plugrl_env_client.link.frames import FrameWriter
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.connection import Connection, Role, Timeouts
from plugrl_protocol.messages import Action, Feedback, Infer
from plugrl_protocol.spaces import BoxSpace
from websocket_peers import BINARY, CLOSE, FINAL
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

ACCEPT = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


# --- the server ----------------------------------------------------------------------------------


def frame(opcode: int, payload: bytes) -> bytes:
    """An unmasked frame."""
    size = len(payload)
    if size < 126:
        return bytes((FINAL | opcode, size)) + payload
    wide = size >= 1 << 16
    return bytes((FINAL | opcode, 127 if wide else 126)) + size.to_bytes(8 if wide else 2, "big") + payload


def receive(reader: floors.Reader) -> int:
    """Read a client's frame and forget it; returns its first byte."""
    first, size = reader.take(2)
    size &= 0x7F
    if size >= 126:
        size = int.from_bytes(reader.take(2 if size == 126 else 8), "big")
    reader.take(4 + size)
    return first


def upgrade(sock: socket.socket, reader: floors.Reader) -> None:
    """Answer the handshake of RFC 6455."""
    request = bytearray()
    while not request.endswith(b"\r\n\r\n"):
        request += reader.take(1)
    lines = request.decode().split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    accept = base64.b64encode(hashlib.sha1(f"{fields['sec-websocket-key']}{ACCEPT}".encode()).digest()).decode()
    answer = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    sock.sendall("\r\n".join([*answer, f"Sec-WebSocket-Accept: {accept}", "", ""]).encode())


def serve_client(sock: socket.socket, shape: Shape) -> None:
    """Play one client's whole connection."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reader = floors.Reader(sock)
    upgrade(sock, reader)
    sock.sendall(frame(BINARY, encode(payloads.metadata())))
    chunk = np.zeros((1, shape.envs, payloads.ACTION_DIM), np.float32)
    answer = frame(BINARY, encode(payloads.action(chunk, np.arange(shape.envs))))
    while receive(reader) != FINAL | CLOSE:
        sock.sendall(answer)
        if receive(reader) == FINAL | CLOSE:
            break
    sock.sendall(frame(CLOSE, (1000).to_bytes(2, "big")))


def start_server(shape: Shape) -> measure.Process:
    """The server in a process of its own; its output matches `floors.READY` once it listens."""
    command = [sys.executable, str(Path(__file__).resolve()), "--shape", shape.name]
    return measure.Process(command, name=f"canned server ({shape.name})")


# --- the env and the least client ----------------------------------------------------------------


class CannedEnv(BaseEnv):
    """Shows the same observation after every step, in episodes without end; notes when it is stepped.

    Attributes:
        stamps: int64 [count + 1], nanoseconds of wall time at each step that is measured.
        cpu_us: processor time of this process from the first of them to the last, for one step.
    """

    def __init__(self, shape: Shape, count: int, warm_up: int) -> None:
        self.num_envs = shape.envs
        ones = np.ones(payloads.ACTION_DIM, np.float32)
        self.action_space = BoxSpace(ones.shape, ones.dtype, -ones, ones)
        self.stamps = np.zeros(count + 1, np.int64)
        self.cpu_us = 0.0
        self._next = -warm_up
        flags = np.zeros(shape.envs, np.bool_)
        self._step = Step(Observation(**shape.observation()), np.ones(shape.envs, np.float32), flags, flags, {})

    def reset(self, seed: int | None) -> Observation:
        """Nothing here is random."""
        del seed
        return self._step.observation

    def step(self, actions: np.ndarray) -> Step:
        """Note the time."""
        del actions
        if self._next >= 0:
            if self._next == 0:
                self._cpu_ns = time.process_time_ns()
            self.stamps[self._next] = time.perf_counter_ns()
            if self._next == len(self.stamps) - 1:
                self.cpu_us = (time.process_time_ns() - self._cpu_ns) / self._next / 1e3
        self._next += 1
        return self._step

    def reset_indices(self, indices: np.ndarray) -> Observation:
        """Never asked for: no episode ends."""
        raise AssertionError(indices)


class _CodecClient(abc.ABC):
    """Encode, send, receive, decode, step, encode, send."""

    def run(self, env: CannedEnv, exchanges: int) -> None:
        """So many exchanges, one step each."""
        envs = np.arange(env.num_envs)
        rows = {"env_indices": envs, "step_ids": np.zeros_like(envs)}
        observation = env.reset(None)
        for _ in range(exchanges):
            self.send(encode({"message_type": "infer", "data": _seen(observation), **rows}))
            chunk = decode(self.receive())["data"]["action"]
            observation, rewards, terminated, truncated, _ = env.step(chunk[0])
            outcome = {"rewards": rewards, "terminated": terminated, "truncated": truncated, "info": {}}
            data = {"obs": _seen(observation), **outcome}
            self.send(encode({"message_type": "feedback", "data": data, **rows}))

    @abc.abstractmethod
    def send(self, payload: bytes) -> None:
        """Send a binary message."""

    @abc.abstractmethod
    def receive(self) -> bytes:
        """Wait for the next binary message."""


class MinimalClient(_CodecClient):
    """A blocking socket, and `websockets` for everything between its bytes and messages."""

    def __init__(self, port: int, shape: Shape) -> None:
        del shape
        self._protocol = ClientProtocol(parse_uri(f"ws://127.0.0.1:{port}"), max_size=None)
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._messages: deque[bytes] = deque()
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        decode(self.receive())

    def send(self, payload: bytes) -> None:
        """Send a binary message."""
        self._protocol.send_binary(payload)
        self._flush()

    def receive(self) -> bytes:
        """Wait for the next binary message."""
        while not self._messages:
            self._protocol.receive_data(self._sock.recv(1 << 16))
            for event in self._protocol.events_received():
                if isinstance(event, Frame) and event.opcode is Opcode.BINARY:
                    self._messages.append(event.data)
            self._flush()
        return self._messages.popleft()

    def close(self) -> None:
        """Close with 1000, and wait for the answer."""
        self._protocol.send_close(1000)
        self._flush()
        while data := self._sock.recv(1 << 16):
            self._protocol.receive_data(data)
        self._sock.close()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._sock.sendall(data)


class RawClient(_CodecClient):
    """Frames by hand (websocket_peers.py): nothing is checked, and nothing masked but with zeros."""

    def __init__(self, port: int, shape: Shape) -> None:
        self._link = websocket_peers.RawClient(port, shape)

    def send(self, payload: bytes) -> None:
        """Send a binary message."""
        self._link.send(BINARY, payload)

    def receive(self) -> bytes:
        """Wait for the next binary message."""
        return bytes(self._link.receive())

    def close(self) -> None:
        """Close with 1000, and wait for the answer."""
        self._link.close()


class CoreClient(websocket_peers.RawClient):
    """The same on `plugrl_protocol`'s core: checked messages in their turn, and real masks."""

    def __init__(self, port: int, shape: Shape) -> None:
        super().__init__(port, shape)
        self._envs = np.arange(shape.envs)
        self._step_ids = np.zeros_like(self._envs)
        self._core = Connection(Role.CLIENT, now=time.monotonic(), timeouts=Timeouts(metadata=None))
        self._core.receive(encode(payloads.metadata()), time.monotonic())
        self._writer = FrameWriter()

    def run(self, env: CannedEnv, exchanges: int) -> None:
        """So many exchanges, one step each."""
        observation = env.reset(None)
        for _ in range(exchanges):
            self._say(Infer(observation, self._envs, self._step_ids))
            action = self._core.receive(bytes(self.receive()), time.monotonic())
            assert isinstance(action, Action)
            observation, rewards, terminated, truncated, _ = env.step(action.action[0])
            self._say(Feedback(self._envs, self._step_ids, observation, rewards, terminated, truncated, {}))

    def _say(self, message: Infer | Feedback) -> None:
        self._sock.sendall(self._writer.write(self._core.send_pieces(message, time.monotonic())))


def _seen(observation: Observation) -> dict[str, object]:
    return {"images": observation.images, "states": observation.states, "text": observation.text}


def main() -> None:
    """Serve one client after the other on a port that the system chooses, until ended by a signal."""
    parser = argparse.ArgumentParser(description="The canned server of the env client's benchmark.")
    parser.add_argument("--shape", choices=SHAPES, default="n1")
    shape = SHAPES[parser.parse_args().shape]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", flush=True)
        while True:
            sock, _ = listener.accept()
            with sock:
                try:
                    serve_client(sock, shape)
                except ConnectionError:
                    continue


if __name__ == "__main__":
    main()
