#!/usr/bin/env python3
"""A PlugRL env client written from SPEC.md alone: msgpack and websockets, nothing from PlugRL, no NumPy.

    raw_client.py --port 8000 --steps 20        a toy env, for 20 exchanges; then it says goodbye
    raw_client.py --port 8000 --probe           the probe env of SPEC 8.1, until the server stops
    raw_client.py --port 8000 --train --batch 16    Gymnasium's Pendulum-v1, until the server stops
    raw_client.py --vectors DIR                 no server: run the test vectors in DIR

It reads from top to bottom: codec, messages, socket, envs, client. `--bug NAME` breaks one rule on purpose.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import signal
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus, InvalidURI
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

BUGS = {
    "early-infer": "5.1: sends an infer without waiting for the metadata",
    "compress": "1.1: offers permessage-deflate",
    "frame-cap": "1.1: keeps the library's cap of 1 MiB a frame",
    "float32": "5.3: takes every action for float32, whatever its dtype says",
    "env-major": "5.3: reads the action [n,H,...] (seen with 2 envs or more)",
    "last-step-reward": "5.4: reports the last step's reward, not the sum",
    "reset-in-step": "5.4: resets inside the step, so a done row shows the next episode",
    "resend-feedback": "7.6: sends the feedback of the old connection on the new one",
    "ignore-stop": "7.1: reconnects after the server's stop",
    "ignore-text": "7.4: goes on after a text frame",
    "stale-chunk": "7.6: goes on with the old connection's chunks (seen with 2 envs or more)",
    "reuse-unoffered": "10.1: uses reuse-feedback-obs unasked",
    "reuse-after-reset": "10.1: reuses the final observation after a reset",
}

MAX_FRAME = 256 * 2**20  # SPEC 1.1
CONNECT_SECONDS = 30.0  # for connecting, the upgrade and the metadata together
PING_SECONDS, GIVE_UP_SECONDS = 20.0, 60.0  # SPEC 7.7
CLOSE_SECONDS = 2.0  # how long we wait for the other end of the closing handshake
REUSE, DECLARE = "reuse-feedback-obs", "declare-spaces"

# ---------------------------------------------------------------------------------------------------- codec (SPEC 3)

MAX_DEPTH, MAX_ELEMENTS, MAX_DIMENSIONS = 16, 65_536, 32
MAX_WIDE_TEXT = 512 * 2**10  # bytes of non-ASCII str, which may take four times their size in memory

ARRAY_KEYS = {b"__ndarray__", b"data", b"dtype", b"shape"}
SCALAR_KEYS = {b"__npgeneric__", b"data", b"dtype"}
TYPESTR = re.compile(r"([<>|])([biufU])([1-9][0-9]{0,7})", re.ASCII)
SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}
STRUCT_CODES = {"b1": "?", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q"}
STRUCT_CODES |= {"f2": "e", "f4": "f", "f8": "d"}


class MalformedError(Exception):
    """The peer broke the protocol. `path` says where, `detail` what."""

    def __init__(self, detail: str, *path: str) -> None:
        super().__init__(f"{'.'.join(path)}: {detail}" if path else detail)
        self.detail, self.path = detail, path


@dataclass(frozen=True)
class Array:
    """A NumPy array as it travels (SPEC 3.2)."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def numbers(self, dtype: str | None = None) -> tuple[Any, ...]:
        """All elements in C order; `dtype` reads the bytes as something else."""
        typestr = dtype or self.dtype
        order = "<" if typestr[0] == "|" else typestr[0]
        return struct.unpack_from(f"{order}{math.prod(self.shape)}{STRUCT_CODES[typestr[1:]]}", self.data)


@dataclass(frozen=True)
class Scalar:
    """A NumPy scalar as it travels (SPEC 3.2)."""

    dtype: str
    value: bool | int | float


def array(dtype: str, values: list[Any], *shape: int) -> Array:
    """The array of `values`; of one dimension unless a shape is given."""
    code = STRUCT_CODES[dtype[1:]]
    return Array(dtype, shape or (len(values),), struct.pack(f"<{len(values)}{code}", *values))


def encode(value: Any) -> bytes:
    """Value -> frame."""
    frame: bytes = msgpack.packb(value, default=to_map)
    return frame


def to_map(value: Any) -> dict[bytes, Any]:
    """The map of bin keys that stands for an array or a scalar, in openpi's key order."""
    if isinstance(value, Array):
        return {b"__ndarray__": True, b"data": value.data, b"dtype": value.dtype, b"shape": list(value.shape)}
    if isinstance(value, Scalar):
        return {b"__npgeneric__": True, b"data": value.value, b"dtype": value.dtype}
    raise TypeError(f"a {type(value).__name__} may not travel")


def decode(frame: bytes) -> Any:
    """Frame -> value; arrays and scalars are `Array` and `Scalar`."""
    reader = Reader(frame)
    value = reader.value(0)
    if reader.position != len(frame):
        raise MalformedError(f"{len(frame) - reader.position} bytes follow the value")
    return value


# What msgpack's type bytes 0xc0 to 0xdf say; the others hold their length or value themselves.
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
NUMBERS = dict(zip(range(0xCA, 0xD4), (">f", ">d", ">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q"), strict=True))
SIZED = {0xC4: ("binary", ">B"), 0xC5: ("binary", ">H"), 0xC6: ("binary", ">I")}
SIZED |= {0xD9: ("text", ">B"), 0xDA: ("text", ">H"), 0xDB: ("text", ">I")}
SIZED |= {0xDC: ("list", ">H"), 0xDD: ("list", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I")}


class Reader:
    """Reads msgpack and counts what it holds before building it: msgpack's own unpacker would believe any header."""

    def __init__(self, frame: bytes) -> None:
        self.frame, self.position, self.elements, self.wide_text = frame, 0, 0, 0

    def _take(self, count: int) -> bytes:
        start = self.position
        self.position += count
        if self.position > len(self.frame):
            raise MalformedError("the frame ends inside a value")
        return self.frame[start : self.position]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def value(self, depth: int) -> Any:
        """The value at the position, which is inside `depth` containers."""
        code = self._take(1)[0]
        if code < 0x80:
            return code
        if code >= 0xE0:
            return code - 0x100
        if code < 0xA0:
            return self._sized("map" if code < 0x90 else "list", code & 15, depth)
        if code < 0xC0:
            return self._text(code & 31)
        if code in CONSTANTS:
            return CONSTANTS[code]
        if code in NUMBERS:
            return self._number(NUMBERS[code])
        if code in SIZED:
            kind, form = SIZED[code]
            return self._sized(kind, self._number(form), depth)
        raise MalformedError(f"msgpack type 0x{code:02x} is not allowed")

    def _sized(self, kind: str, length: int, depth: int) -> Any:
        if kind == "binary":
            return self._take(length)
        if kind == "text":
            return self._text(length)
        self.elements += length if kind == "list" else 2 * length
        if depth == MAX_DEPTH or self.elements > MAX_ELEMENTS:
            raise MalformedError(f"expected at most {MAX_DEPTH} levels and {MAX_ELEMENTS} elements")
        return self._list(length, depth + 1) if kind == "list" else self._map(length, depth + 1)

    def _text(self, length: int) -> str:
        raw = self._take(length)
        self.wide_text += 0 if raw.isascii() else length
        if self.wide_text > MAX_WIDE_TEXT:
            raise MalformedError(f"expected at most {MAX_WIDE_TEXT} bytes of non-ASCII str")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise MalformedError("a str is not UTF-8") from None

    def _list(self, length: int, depth: int) -> list[Any]:
        return [self._inside(str(index), depth) for index in range(length)]

    def _map(self, length: int, depth: int) -> Any:
        values = {}
        for _ in range(length):
            key = self.value(MAX_DEPTH)
            if not isinstance(key, (str, bytes)):
                raise MalformedError("expected a map key of str or bin")
            values[key] = self._inside(key if isinstance(key, str) else repr(key)[2:-1], depth)
        if b"__ndarray__" in values:
            return to_array(values)
        return to_scalar(values) if b"__npgeneric__" in values else values

    def _inside(self, name: str, depth: int) -> Any:
        """The next value; an error in it carries `name` in its path."""
        try:
            return self.value(depth)
        except MalformedError as error:
            raise MalformedError(error.detail, name, *error.path) from None


def item_size(dtype: Any) -> int:
    """Bytes of one element, if `dtype` may travel (SPEC 3.3)."""
    match = TYPESTR.fullmatch(dtype) if isinstance(dtype, str) else None
    if match:
        order, kind, size = match[1], match[2], int(match[3])
        if kind == "U" and order != "|":
            return 4 * size
        if size in SIZES.get(kind, ()) and (order != "|" or size == 1):
            return size
    raise MalformedError(f"dtype: expected b1, i1-i8, u1-u8, f2-f8 or U, got {dtype!r:.40}")


def to_array(wire: dict[Any, Any]) -> Array:
    """The array that a map stands for, every byte accounted for."""
    if wire.keys() != ARRAY_KEYS or wire[b"__ndarray__"] is not True:
        raise MalformedError("expected exactly __ndarray__ (true), data, dtype and shape")
    data, dtype, shape = wire[b"data"], wire[b"dtype"], wire[b"shape"]
    size = item_size(dtype)
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise MalformedError(f"shape: expected a list of at most {MAX_DIMENSIONS} ints")
    if not all(type(length) is int and length >= 0 for length in shape):
        raise MalformedError("shape: expected ints of 0 or more")
    if size * math.prod(max(1, length) for length in shape) >= 2**63:  # an empty array may not overflow either
        raise MalformedError(f"shape: {shape} is too large")
    if not isinstance(data, bytes) or len(data) != size * math.prod(shape):
        raise MalformedError(f"data: expected {size * math.prod(shape)} bytes of bin for {dtype} {shape}")
    if dtype[1] == "b" and data.strip(b"\0\1"):
        raise MalformedError("data: expected bools of 0 or 1")
    if dtype[1] == "U":
        try:
            data.decode("utf-32-le" if dtype[0] == "<" else "utf-32-be")
        except UnicodeDecodeError:
            raise MalformedError("data: not UTF-32") from None
    return Array(dtype, tuple(shape), data)


def to_scalar(wire: dict[Any, Any]) -> Scalar:
    """The scalar that a map stands for."""
    if wire.keys() != SCALAR_KEYS or wire[b"__npgeneric__"] is not True:
        raise MalformedError("expected exactly __npgeneric__ (true), data and dtype")
    value, dtype = wire[b"data"], wire[b"dtype"]
    size = item_size(dtype)
    kind = dtype[1]
    types = {"b": (bool,), "i": (int,), "u": (int,), "f": (int, float)}.get(kind, ())
    if type(value) not in types:
        raise MalformedError(f"data: not a scalar of {dtype}")
    least = -(2 ** (8 * size - 1)) if kind == "i" else 0
    if kind in "iu" and not least <= value < least + 2 ** (8 * size):
        raise MalformedError(f"data: {value} does not fit {dtype}")
    return Scalar(dtype, value)


# ------------------------------------------------------------------------------------------- messages (SPEC 2 and 5)


def read_message(frame: bytes, kind: str) -> dict[str, Any]:
    """The `data` of the message in `frame`, which must be a `kind`."""
    value = decode(frame)
    if not isinstance(value, dict) or value.get("message_type") != kind:
        raise MalformedError(f"expected a map with message_type {kind!r}")
    data = value.get("data")
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise MalformedError("expected a map with str keys", kind, "data")
    return data


def read_metadata(frame: bytes) -> dict[str, Any]:
    """What the server says about itself. No key is required (SPEC 5.1)."""
    data = read_message(frame, "metadata")
    features = data.get("features", [])
    if not isinstance(features, list) or not all(isinstance(name, str) for name in features):
        raise MalformedError("expected a list of str", "metadata", "data", "features")
    for key in ("protocol_version", "action_horizon"):
        if key in data and (type(data[key]) is not int or data[key] < 1):
            raise MalformedError("expected an int of 1 or more", "metadata", "data", key)
    return data


class Action(NamedTuple):
    """An action: [H,n,...], and the envs it is for, if the server says so."""

    array: Array
    env_ids: list[int] | None


def read_action(frame: bytes) -> Action:
    """The action in `frame` (SPEC 5.3)."""
    data = read_message(frame, "action")
    action, env_ids = data.get("action"), data.get("env_ids")
    path = ("action", "data")
    if not isinstance(action, Array) or action.dtype[1] == "U" or len(action.shape) < 2 or action.shape[0] < 1:
        raise MalformedError("expected numbers[H,n,...] with H >= 1", *path, "action")
    if env_ids is None:
        return Action(action, None)
    if not isinstance(env_ids, Array) or env_ids.dtype[1] not in "iu" or env_ids.shape != action.shape[1:2]:
        raise MalformedError(f"expected int[{action.shape[1]}]", *path, "env_ids")
    return Action(action, list(env_ids.numbers()))


# --------------------------------------------------------------------------------------- socket (SPEC 1 and RFC 6455)


class ClosedError(Exception):
    """The connection is over; code 1006 stands for one that broke."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}".rstrip())
        self.code, self.reason = code, reason


class RefusedError(Exception):
    """Trying again would change nothing."""


class TextFrameError(Exception):
    """A text frame came where a binary one was due (SPEC 7.4)."""


class Link:
    """One WebSocket connection over a blocking socket."""

    def __init__(self, host: str, port: int, api_key: str | None, bug: str | None) -> None:
        try:
            uri = parse_uri(f"ws://[{host}]:{port}/" if ":" in host else f"ws://{host}:{port}/")
        except (InvalidURI, ValueError):
            raise RefusedError(f"--host {host!r}: expected a host name or an IP address") from None
        compress = [ClientPerMessageDeflateFactory()] if bug == "compress" else None
        limit = 2**20 if bug == "frame-cap" else MAX_FRAME  # not the library's 1 MiB (SPEC 1.1)
        self.protocol = ClientProtocol(uri, extensions=compress, max_size=limit)
        self.inbox: deque[bytes | None] = deque()  # None: a text frame
        self.parts: list[bytes] = []
        self.upgraded = False
        self.deadline: float | None = time.monotonic() + CONNECT_SECONDS  # until the metadata is here
        self.unanswered: float | None = None  # when the first of the unanswered pings left
        try:
            self.socket = socket.create_connection((host, port), CONNECT_SECONDS)
        except (OSError, UnicodeError) as error:
            raise ClosedError(1006, f"cannot connect to {host} port {port}: {error}") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._upgrade(api_key)
        except BaseException:
            self.socket.close()
            raise

    def _upgrade(self, api_key: str | None) -> None:
        request = self.protocol.connect()
        if api_key:
            request.headers["Authorization"] = f"Api-Key {api_key}"
        self.protocol.send_request(request)
        self._flush()
        while not self.upgraded:
            self._read()

    def send(self, frame: bytes) -> None:
        """Send one binary message."""
        if self.protocol.state is not State.OPEN:
            self._over()
        self.protocol.send_binary(frame)
        self._flush()

    def receive(self) -> bytes:
        """The next message; waits for it as long as the server answers pings (SPEC 7.7)."""
        while not self.inbox:
            if self.protocol.state is not State.OPEN:
                self._over()
            self._read()
        message = self.inbox.popleft()
        if message is None:
            raise TextFrameError
        return message

    def close(self, code: int, reason: str = "") -> None:
        """Say goodbye, and wait a moment for the answer."""
        if self.protocol.state is State.OPEN:
            self.protocol.send_close(code, reason.encode()[:123].decode(errors="ignore"))
        try:
            self._flush()
            self._finish()
        except (ClosedError, OSError):
            pass  # it is over either way
        self.socket.close()

    def _flush(self) -> None:
        self.socket.settimeout(GIVE_UP_SECONDS)
        try:
            for data in self.protocol.data_to_send():
                if data:
                    self.socket.sendall(data)
                else:  # the protocol's way to say: nothing more will follow
                    self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._finish()  # the server's close frame may be waiting for us
            if self.protocol.close_rcvd is None:
                raise ClosedError(1006, str(error)) from None
            self._over()

    def _read(self) -> None:
        """Wait for data, and take in what comes; ping when nothing does."""
        patience = PING_SECONDS
        if self.deadline is not None:
            patience = min(patience, self.deadline - time.monotonic())
            if patience <= 0:
                raise ClosedError(1006, f"no metadata within {CONNECT_SECONDS:g} s")
        self.socket.settimeout(patience)
        try:
            data = self.socket.recv(2**20)
        except TimeoutError:
            self._ping()
            return
        except OSError:
            data = b""
        self.unanswered = None
        if data:
            self.protocol.receive_data(data)
        else:
            self.protocol.receive_eof()
        self._take_events()
        if self.protocol.state is not State.CLOSED:
            self._flush()

    def _take_events(self) -> None:
        for event in self.protocol.events_received():
            if isinstance(event, Frame):
                self._take_frame(event)
            elif self.protocol.handshake_exc is None:
                self.upgraded = True
        error = self.protocol.handshake_exc
        if isinstance(error, InvalidStatus) and error.response.status_code == 401:
            raise RefusedError("HTTP 401: the server wants an API key (PLUGRL_API_KEY)")
        if error is not None:
            raise ClosedError(1006, f"no upgrade: {error}")

    def _take_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT:
            self.inbox.append(None)
        elif frame.opcode in (Opcode.BINARY, Opcode.CONT):
            self.parts.append(bytes(frame.data))
            if frame.fin:
                self.inbox.append(b"".join(self.parts))
                self.parts = []

    def _ping(self) -> None:
        now = time.monotonic()
        if self.protocol.state is not State.OPEN:
            return
        if self.unanswered is not None and now - self.unanswered >= GIVE_UP_SECONDS:
            raise ClosedError(1006, f"the server has answered no ping for {GIVE_UP_SECONDS:g} s")
        self.unanswered = self.unanswered or now
        self.protocol.send_ping(b"plugrl")
        self._flush()

    def _over(self) -> None:
        """Raise what ended the connection."""
        self.close(1000)
        if self.protocol.close_rcvd is not None:
            raise ClosedError(self.protocol.close_rcvd.code, self.protocol.close_rcvd.reason)
        if self.protocol.close_sent is not None:  # the library found a fault and has said so
            raise RefusedError(f"the server broke the protocol: {self.protocol.parser_exc}")
        raise ClosedError(1006, "the connection broke")

    def _finish(self) -> None:
        """Read to the end, for a moment."""
        until = time.monotonic() + CLOSE_SECONDS
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(2**20)
            except OSError:
                return
            if not data:
                return
            self.protocol.receive_data(data)


# ----------------------------------------------------------------------------------------------------- environments


class Outcome(NamedTuple):
    """What one env step brought."""

    reward: float
    terminated: bool = False
    truncated: bool = False


class ProbeEnv:
    """The probe environment (SPEC 8.1): env i's episode lasts 3 + 2 * (i mod 3) steps."""

    text = "probe"

    def __init__(self, index: int) -> None:
        self.length = 3 + 2 * (index % 3)
        self.last = [0.0]  # its width is known once an action has come
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self.time = 0

    def step(self, action: list[float]) -> Outcome:
        """Apply one action."""
        self.time += 1
        self.last = list(action)
        return Outcome(1.0, terminated=self.time >= self.length)

    def states(self) -> dict[str, list[float]]:
        """The observation, by name."""
        return {"t": [float(self.time)], "a": self.last}

    def success(self) -> bool:
        """Whether the episode has gone well."""
        return True


class CartEnv:
    """A toy for watch mode: keep a drifting cart near 0 by pushing it with the first number of the action."""

    text = "hold the cart"

    def __init__(self, index: int) -> None:
        self.start = 0.1 * (index % 5) - 0.2
        self.limit = 25 + 5 * (index % 3)
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self.position, self.speed, self.time = self.start, 0.0, 0

    def step(self, action: list[float]) -> Outcome:
        """Apply one action."""
        self.time += 1
        self.speed += 0.1 * min(1.0, max(-1.0, action[0] if action else 0.0))
        self.position += 0.1 * self.speed
        fell = abs(self.position) > 1.0
        return Outcome(-(self.position**2), terminated=fell, truncated=not fell and self.time >= self.limit)

    def states(self) -> dict[str, list[float]]:
        """The observation, by name."""
        return {"obs": [self.position, self.speed, self.time / self.limit]}

    def success(self) -> bool:
        """Whether the episode has gone well."""
        return abs(self.position) <= 1.0


class PendulumEnv:
    """Gymnasium's Pendulum-v1: the same dynamics, reward, start and limit of 200 steps."""

    text = "swing up"
    env_id, limit = "Pendulum-v1", 200
    max_speed, max_torque, dt, gravity = 8.0, 2.0, 0.05, 10.0  # mass and length are 1

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self.angle = self.random.uniform(-math.pi, math.pi)  # 0 is upright
        self.speed = self.random.uniform(-1.0, 1.0)
        self.time = 0

    def step(self, action: list[float]) -> Outcome:
        """Apply one action."""
        torque = min(self.max_torque, max(-self.max_torque, action[0]))
        upright = (self.angle + math.pi) % (2 * math.pi) - math.pi
        cost = upright**2 + 0.1 * self.speed**2 + 0.001 * torque**2
        self.speed += (3 * self.gravity / 2 * math.sin(self.angle) + 3.0 * torque) * self.dt
        self.speed = min(self.max_speed, max(-self.max_speed, self.speed))
        self.angle += self.speed * self.dt
        self.time += 1
        return Outcome(-cost, truncated=self.time >= self.limit)

    def states(self) -> dict[str, list[float]]:
        """The observation, by name."""
        return {"obs": [math.cos(self.angle), math.sin(self.angle), self.speed]}

    def success(self) -> bool:
        """Whether the episode has gone well."""
        return math.cos(self.angle) > 0.95

    def action_space(self) -> dict[str, Any]:
        """The declaration of SPEC 10.2."""
        low, high = array("<f4", [-self.max_torque]), array("<f4", [self.max_torque])
        return {"kind": "box", "shape": [1], "dtype": "<f4", "low": low, "high": high}


Env = ProbeEnv | CartEnv | PendulumEnv


class Slot:
    """One env, the chunk it runs, and what its next feedback will say."""

    def __init__(self, index: int, env: Env, bug: str | None) -> None:
        self.index, self.env, self.bug = index, env, bug
        self.chunk: deque[list[float]] = deque()
        self.outcome = Outcome(0.0)
        self.reward = 0.0  # summed over the chunk (SPEC 5.4)
        self.step_id = 0  # chunks completed in this episode on this connection (SPEC 5.2)
        self.reusable = False  # whether the server holds this env's observation (SPEC 10.1)
        self.whole = True  # whether the episode has lived on one connection only
        self.episode_return, self.episode_length = 0.0, 0

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.outcome.terminated or self.outcome.truncated

    @property
    def finished(self) -> bool:
        """Whether the chunk is over, early or not."""
        return self.done or not self.chunk

    def step(self) -> None:
        """Run the next action of the chunk."""
        self.outcome = self.env.step(self.chunk.popleft())
        self.reward = self.outcome.reward + (0.0 if self.bug == "last-step-reward" else self.reward)
        self.episode_return += self.outcome.reward
        self.episode_length += 1
        if self.done and self.bug == "reset-in-step":
            self.env.reset()

    def reported(self) -> None:
        """The feedback has been sent: the chunk is over, and so may be the episode."""
        self.step_id += 1
        self.reusable = not self.done or self.bug == "reuse-after-reset"
        self._clear()

    def reconnected(self) -> None:
        """A new connection: whatever was under way is dropped, and the server knows nothing (SPEC 7.6)."""
        self.step_id, self.reusable = 0, False
        if self.finished or self.bug != "stale-chunk":
            self.whole = self.whole and self.episode_length == 0
            self._clear()

    def _clear(self) -> None:
        self.chunk.clear()
        self.reward = 0.0
        if self.done:
            self.env.reset()
            self.step_id, self.episode_return, self.episode_length, self.whole = 0, 0.0, 0, True
        self.outcome = Outcome(0.0)


def observe(slots: list[Slot], like: Env) -> dict[str, Any]:
    """The observations of `slots` as one batch (SPEC 5.2); `like` gives names and widths when there is none."""
    rows = [slot.env.states() for slot in slots]
    states = {}
    for name, values in like.states().items():
        states[name] = array("<f8", [number for row in rows for number in row[name]], len(rows), len(values))
    return {"images": {}, "states": states, "text": [slot.env.text for slot in slots]}


def episode_info(slots: list[Slot]) -> dict[str, Any]:
    """`info` of a feedback: how the episodes ended, where any did (SPEC 5.4)."""
    if not any(slot.done for slot in slots):
        return {}
    return {
        "episode": {
            "r": array("<f8", [slot.episode_return for slot in slots]),
            "l": array("<i8", [slot.episode_length for slot in slots]),
            "s": array("|b1", [slot.env.success() for slot in slots]),
            "mask": array("|b1", [slot.done and slot.whole for slot in slots]),
        }
    }


# ------------------------------------------------------------------------------------------------ client (SPEC 4, 7)


class Client:
    """Runs the envs on the actions of one server, over as many connections as it takes."""

    def __init__(self, options: argparse.Namespace, slots: list[Slot]) -> None:
        self.options, self.slots, self.bug = options, slots, options.bug
        self.link: Link | None = None
        self.reuse = self.declare = self.asked_early = False
        self.exchanges = self.attempts = 0
        self.held: bytes | None = None  # the last feedback, until an action shows that the server has it

    def run(self) -> int:
        """The exit status."""
        try:
            while (status := self._converse()) is None:
                pass
            return status
        except TextFrameError:
            return self._leave(1003, "the server sent a text frame", 1)
        except MalformedError as error:
            return self._leave(1002, f"the server broke the protocol: {error}", 1)
        except RefusedError as error:
            return self._leave(1002, str(error), 1)
        except KeyboardInterrupt:
            return self._leave(1000, "interrupted", 130)

    def _converse(self) -> int | None:
        """One connection from its opening to its end: the exit status, or None if another is to follow."""
        try:
            link = self._open()
            while self.options.steps == 0 or self.exchanges < self.options.steps:
                self._exchange(link)
        except ClosedError as closed:
            return self._react(closed)
        return self._leave(1000, f"{self.exchanges} exchanges, done", 0)

    def _leave(self, code: int, why: str, status: int) -> int:
        say(why)
        if self.link is not None:
            self.link.close(code, why if code != 1000 else "")
        return status

    def _react(self, closed: ClosedError) -> int | None:
        """What to do after a close (SPEC 7.7): the exit status, or None after waiting to reconnect."""
        if self.link is not None:
            self.link.close(1011, "no answer to pings")  # if nobody has closed yet
            self.link = None
        if closed.code == 1001 and closed.reason == "plugrl-server-stop" and self.bug != "ignore-stop":
            say(f"the server has ended the run; {self.exchanges} exchanges")
            return 0
        if closed.code in (1003, 1008, 1009):
            say(f"the server refuses this client: {closed}")
            return 1
        if self.attempts >= self.options.max_reconnects:
            say(f"{closed}; giving up after {self.attempts} attempts to reconnect")
            return 1
        pause = min(5.0, 0.1 * 2**self.attempts) * random.uniform(0.5, 1.0)
        self.attempts += 1
        say(f"{closed}; attempt {self.attempts} of {self.options.max_reconnects} in {pause:.1f} s")
        time.sleep(pause)
        return None

    def _open(self) -> Link:
        """Connect, and read the metadata."""
        for slot in self.slots:
            slot.reconnected()
        held, self.held = self.held, None
        self.reuse = self.declare = False
        link = self.link = Link(self.options.host, self.options.port, self.options.api_key, self.bug)
        self.asked_early = self.bug == "early-infer"
        if self.asked_early:
            link.send(self._infer(self.slots))
        metadata = read_metadata(link.receive())
        link.deadline = None
        if metadata.get("protocol_version", 1) > 1:
            say(f"the server speaks version {metadata['protocol_version']} of the protocol, this client version 1")
        features = metadata.get("features", [])
        self.reuse = (REUSE in features and not self.options.no_reuse) or self.bug == "reuse-unoffered"
        self.declare = DECLARE in features
        if self.bug == "resend-feedback" and held is not None:
            link.send(held)
        return link

    def _exchange(self, link: Link) -> None:
        """One infer, its action, and the feedback of the envs whose chunk ends first."""
        asked = [slot for slot in self.slots if not slot.chunk]
        if not self.asked_early:
            link.send(self._infer(asked))
        self.asked_early = self.declare = False
        frame = self._answer(link, asked)
        if self.held is not None:
            self.held, self.attempts = None, 0
        self._take_action(frame, asked)
        finished: list[Slot] = []
        while not finished:
            for slot in self.slots:
                slot.step()
            finished = [slot for slot in self.slots if slot.finished]
        self.held = self._feedback(finished)
        link.send(self.held)
        for slot in finished:
            slot.reported()
        self.exchanges += 1

    def _answer(self, link: Link, asked: list[Slot]) -> bytes:
        while True:
            try:
                return link.receive()
            except TextFrameError:
                if self.bug != "ignore-text":
                    raise
                link.send(self._infer(asked))

    def _take_action(self, frame: bytes, asked: list[Slot]) -> None:
        """Hand out the rows of an action, which is time-major (SPEC 5.3)."""
        action = read_action(frame)
        steps, rows = action.array.shape[:2]
        if rows != len(asked):
            raise MalformedError(f"expected {len(asked)} envs on axis 1, got {rows}", "action", "data", "action")
        if action.env_ids not in (None, [slot.index for slot in asked]):
            raise MalformedError("expected the infer's env_indices", "action", "data", "env_ids")
        numbers = action.array.numbers("<f4" if self.bug == "float32" else None)
        if not all(map(math.isfinite, numbers)) and self.bug != "float32":
            raise MalformedError("expected finite numbers", "action", "data", "action")
        width = math.prod(action.array.shape[2:])
        for row, slot in enumerate(asked):
            for step in range(steps):
                first = (row * steps + step if self.bug == "env-major" else step * rows + row) * width
                slot.chunk.append([float(number) for number in numbers[first : first + width]])

    def _infer(self, asked: list[Slot]) -> bytes:
        """The request for chunks. Rows that the server holds are left out (SPEC 10.1)."""
        sent = [slot for slot in asked if not (self.reuse and slot.reusable)]
        message = {
            "message_type": "infer",
            "data": observe(sent, self.slots[0].env),
            "env_indices": array("<i8", [slot.index for slot in asked]),
            "step_ids": array("<i8", [slot.step_id for slot in asked]),
        }
        if self.reuse:
            message["reuse"] = array("|b1", [slot.reusable for slot in asked])
        if self.declare and isinstance(self.slots[0].env, PendulumEnv):
            message["spaces"] = self._declaration(self.slots[0].env)
        return encode(message)

    def _declaration(self, env: PendulumEnv) -> dict[str, Any]:
        return {
            "action": env.action_space(),
            "env": env.env_id,
            "num_envs": len(self.slots),
            "max_episode_steps": env.limit,
            "client": 1000 * self.options.offset,
        }

    def _feedback(self, finished: list[Slot]) -> bytes:
        """How the chunks that are over went (SPEC 5.4)."""
        return encode(
            {
                "message_type": "feedback",
                "data": {
                    "obs": observe(finished, self.slots[0].env),
                    "rewards": array("<f4", [slot.reward for slot in finished]),
                    "terminated": array("|b1", [slot.outcome.terminated for slot in finished]),
                    "truncated": array("|b1", [slot.outcome.truncated for slot in finished]),
                    "info": episode_info(finished),
                },
                "env_indices": array("<i8", [slot.index for slot in finished]),
                "step_ids": array("<i8", [slot.step_id for slot in finished]),
            }
        )


# ------------------------------------------------------------------------------------------- vectors, command line


OTHER_LAYERS = {"metadata", "infer", "action", "feedback", "exchange"}
VERDICTS = {"accept", "must", "should", "reject"}


def run_vectors(folder: Path, graders: dict[str, Any]) -> int:
    """Grade every `id verdict hex` line of the .txt files in `folder`; the exit status. See README.md."""
    counts = {"passed": 0, "failed": 0, "noted": 0, "skipped": 0, "encoded again byte for byte": 0}
    lines = [line for path in sorted(folder.rglob("*.txt")) for line in path.read_text().splitlines()]
    for words in (line.split() for line in lines if line.strip() and not line.startswith("#")):
        layer = words[0].partition("/")[0]
        if layer in OTHER_LAYERS - graders.keys():
            counts["skipped"] += 1
            continue
        fault, same = grade(graders.get(layer, decode), *words[1:])
        counts["passed" if not fault else "noted" if "should" in words[1:2] else "failed"] += 1
        counts["encoded again byte for byte"] += same
        if fault:
            say(f"{words[0]}: {fault}")
    say(", ".join(f"{count} {result}" for result, count in counts.items()))
    return 0 if counts["passed"] and not counts["failed"] else 1


def grade(reader: Any, verdict: str = "", digits: str = "", *rest: str) -> tuple[str, bool]:
    """What is wrong with how a frame is read, if anything; and whether it is encoded again as it was."""
    try:
        frame = bytes.fromhex(digits)
    except ValueError:
        frame = b""
    if verdict not in VERDICTS or not frame or rest:
        return "expected `id verdict hex`", False
    try:
        value = decode(frame)
        reader(frame)
    except MalformedError as error:
        return "" if verdict == "reject" else f"refused: {error}", False
    if verdict == "reject":
        return "accepted", False
    again = encode(value)  # not `frame` where that uses other forms than msgpack's shortest
    return "" if encode(decode(again)) == again else f"encoded again as {again.hex()}", again == frame


def say(text: str) -> None:
    """A line for the user; what a server wrote into it may not command the terminal."""
    printable = "".join(char if char.isprintable() else "?" for char in text)
    print(f"raw_client: {printable}", file=sys.stderr, flush=True)


def make_slots(options: argparse.Namespace) -> list[Slot]:
    """The envs that the options ask for."""
    seed = options.seed + 1000 * options.offset

    def make(index: int) -> Env:
        if options.train:
            return PendulumEnv(seed + index)
        return ProbeEnv(index) if options.probe else CartEnv(index)

    return [Slot(index, make(index), options.bug) for index in range(options.batch)]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options, with the defaults of their mode."""
    bugs = "\n".join(f"  {name:18} {what}" for name, what in BUGS.items())
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=f"bugs:\n{bugs}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument(
        "--steps", type=int, help="exchanges to run; 0: without end, the default of --probe and --train"
    )
    parser.add_argument("--batch", type=int, help="envs (default: 1; 3 for --probe, 16 for --train)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--probe", action="store_true", help="run the probe env of SPEC 8.1")
    mode.add_argument("--train", action="store_true", help="run Pendulum-v1 and declare its spaces")
    mode.add_argument("--vectors", type=Path, metavar="DIR", help="grade the vectors in DIR and exit")
    parser.add_argument("--seed", type=int, default=0, help="of --train's first env; the next has the next")
    parser.add_argument("--no-reuse", action="store_true", help="send every observation, whatever the server offers")
    parser.add_argument("--api-key", default=os.environ.get("PLUGRL_API_KEY"), help="default: PLUGRL_API_KEY")
    parser.add_argument("--max-reconnects", type=int, default=20, help="attempts since the last completed exchange")
    parser.add_argument("--bug", choices=BUGS, metavar="NAME", help="break one rule, as listed below")
    options = parser.parse_args(arguments)
    watch = not (options.probe or options.train)
    if options.steps is None:
        options.steps = 20 if watch else 0
    if options.batch is None:
        options.batch = 1 if watch else 3 if options.probe else 16
    offset = os.environ.get("PLUGRL_CLIENT_OFFSET") or "0"  # set for each client a server starts
    if not offset.isdecimal():
        parser.error(f"PLUGRL_CLIENT_OFFSET {offset}: expected a whole number")
    options.offset = int(offset)
    limits = {"steps": (0, 2**63), "batch": (1, 1000), "port": (1, 65535), "max_reconnects": (0, 2**31)}
    for name, (least, most) in limits.items():
        if not least <= getattr(options, name) <= most:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}: expected {least} to {most}")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run one mode; the exit status."""
    options = parse(arguments)
    if options.vectors is not None:
        return run_vectors(options.vectors, {"metadata": read_metadata, "action": read_action})
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return Client(options, make_slots(options)).run()


if __name__ == "__main__":
    sys.exit(main())
