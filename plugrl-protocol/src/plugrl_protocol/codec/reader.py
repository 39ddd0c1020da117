"""The careful reader: msgpack read header by header, every limit checked before anything is built (SPEC 3).

It is the judge of what is allowed, and names the path of what is not. It copies no payload, which also makes it the
faster way for large frames. The C unpacker only gets to the same answer sooner for small ones (see `decoder`).
"""

import functools
import re
import struct
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np

from plugrl_protocol.codec.arrays import (
    ARRAY_MARKER,
    SCALAR_MARKER,
    TO_DATA,
    TO_DTYPE,
    TO_SHAPE,
    NotAllowedError,
    build_array,
    build_scalar,
    view,
)
from plugrl_protocol.codec.limits import MAX_DEPTH, MAX_ELEMENTS, MAX_WIDE_TEXT
from plugrl_protocol.errors import RemoteProtocolError, show_key

MSGPACK = "3 codec/msgpack"
LIMITS = "3.3 codec/limits"
KEYS = "3.1 codec/keys"
ARRAY = "3.2 codec/array"

_MESSAGE_TYPES = frozenset({"metadata", "infer", "action", "feedback"})
_CUT = "the frame ends inside a value"
_SHORT = 256  # bytes of a str that are cheaper to copy than to make a memoryview of
_PIECE = 64 * 2**10  # bytes of a long str that are looked at at a time

# An array as every encoder writes it, in the usual order and with lengths as short as can be: up to its bytes ...
_HEAD = re.compile(re.escape(TO_DATA) + rb"(?:\xc4(.)|\xc5(..)|\xc6(....))", re.DOTALL)
# ... and after them. What matches is short, whatever the peer wrote.
_LENGTH = rb"(?:[\x00-\x7f]|\xcc.|\xcd..|\xce....)"
_SHAPE = b"|".join(bytes((0x90 + dimensions,)) + _LENGTH * dimensions for dimensions in range(7))
_TAIL = re.compile(
    re.escape(TO_DTYPE) + rb"[\xa0-\xbf][<>|][a-zA-Z]\d{1,8}" + re.escape(TO_SHAPE) + b"(?:%b)" % _SHAPE, re.DOTALL
)


@functools.lru_cache(maxsize=1024)
def _described(tail: bytes) -> tuple[str, list[int]] | None:
    """The dtype and the shape in a tail; None if it turns out to hold anything else."""
    try:
        found = msgpack.unpackb(b"\x82" + tail)
        return found[b"dtype"], found[b"shape"]
    except (ValueError, KeyError):
        return None


class _FaultError(Exception):
    """What is wrong, and where: the path grows at the front while the exception climbs."""

    def __init__(self, clause: str, detail: str) -> None:
        super().__init__(detail)
        self.clause = clause
        self.detail = detail
        self.path: list[str] = []


class Reader:
    """Reads the one value of one frame; arrays are views on the frame."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._memory = memoryview(frame)
        self._position = 0
        self._elements = 0
        self._wide_text = 0
        self._root = "message"

    def read(self) -> Any:
        """The frame's value.

        Raises:
            RemoteProtocolError: The frame is not exactly one allowed value.
        """
        try:
            value = self._value(0)
            if self._position != len(self._frame):
                raise _FaultError(MSGPACK, f"{len(self._frame) - self._position} bytes follow the value")
        except _FaultError as fault:
            path = ".".join([self._root, *fault.path])
            raise RemoteProtocolError(fault.clause, f"{path}: {fault.detail}") from None
        return bytes(value) if type(value) is memoryview else value

    def _skip(self, count: int) -> int:
        """Go on by `count` bytes; returns where they start."""
        start = self._position
        self._position = start + count
        if self._position > len(self._frame):
            raise _FaultError(MSGPACK, _CUT)
        return start

    def _value(self, depth: int) -> Any:
        """The value at the position, which is inside `depth` containers."""
        start = self._position
        self._position = start + 1
        try:
            code = self._frame[start]
        except IndexError:
            raise _FaultError(MSGPACK, _CUT) from None
        if code < 0x80:
            return code
        if code < 0x90:
            array = self._usual_array(start, depth + 1) if code == 0x84 else None
            return array if array is not None else self._map(code & 0x0F, depth + 1)
        if code < 0xA0:
            return self._list(code & 0x0F, depth + 1)
        if code < 0xC0:
            return self._text(code & 0x1F)
        if code >= 0xE0:
            return code - 0x100
        return _READERS[code - 0xC0](self, depth)

    def _number(self, form: struct.Struct) -> Any:
        return form.unpack_from(self._frame, self._skip(form.size))[0]

    def _binary(self, length: int) -> memoryview:
        start = self._skip(length)
        return self._memory[start : start + length]

    def _text(self, length: int) -> str:
        start = self._skip(length)
        if length < _SHORT:
            raw = self._frame[start : start + length]
            return str(raw, "ascii") if raw.isascii() else self._wide(raw)
        memory = self._memory[start : start + length]
        ascii_only = all(bytes(memory[at : at + _PIECE]).isascii() for at in range(0, length, _PIECE))
        return str(memory, "ascii") if ascii_only else self._wide(memory)

    def _wide(self, raw: bytes | memoryview) -> str:
        self._wide_text += len(raw)
        if self._wide_text > MAX_WIDE_TEXT:
            raise _FaultError(LIMITS, f"expected at most {MAX_WIDE_TEXT} bytes of non-ASCII str in a message")
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise _FaultError(MSGPACK, f"str is not UTF-8: {error.reason}") from None

    def _enter(self, elements: int, depth: int) -> None:
        """Count a container before anything is allocated for it."""
        if depth > MAX_DEPTH:
            raise _FaultError(LIMITS, f"nested deeper than {MAX_DEPTH}")
        self._elements += elements
        if self._elements > MAX_ELEMENTS:
            raise _FaultError(LIMITS, f"expected at most {MAX_ELEMENTS} elements in a message, got {self._elements}")

    def _list(self, length: int, depth: int) -> list[Any]:
        self._enter(length, depth)
        values: list[Any] = []
        try:
            for _ in range(length):
                value = self._value(depth)
                values.append(bytes(value) if type(value) is memoryview else value)
        except _FaultError as fault:
            fault.path.insert(0, str(len(values)))
            raise
        return values

    def _map(self, length: int, depth: int) -> Any:
        self._enter(2 * length, depth)
        values: dict[str | bytes, Any] = {}
        for _ in range(length):
            key = self._key()
            try:
                values[key] = self._value(depth)
            except _FaultError as fault:
                fault.path.insert(0, show_key(key))
                raise
            if depth == 1 and key == "message_type":
                self._name_root(values[key])
        return self._finish(values)

    def _name_root(self, message_type: object) -> None:
        if type(message_type) is str and message_type in _MESSAGE_TYPES:
            self._root = message_type

    def _key(self) -> str | bytes:
        code = self._frame[self._skip(1)]
        if 0xA0 <= code < 0xC0:
            return self._text(code & 0x1F)
        if code not in _KEY_CODES:
            raise _FaultError(KEYS, f"map key: expected str or bin, got msgpack type 0x{code:02x}")
        key: str | memoryview = _READERS[code - 0xC0](self, 0)
        return key if type(key) is str else bytes(key)  # type: ignore[arg-type]

    def _finish(self, values: dict[str | bytes, Any]) -> Any:
        """The array or scalar that a map stands for, or the map."""
        try:
            if ARRAY_MARKER in values:
                return build_array(values)
            if SCALAR_MARKER in values:
                return build_scalar(values)
        except NotAllowedError as error:
            raise _FaultError(ARRAY, str(error)) from None
        for key, value in values.items():
            if type(value) is memoryview:
                values[key] = bytes(value)
        return values

    def _usual_array(self, start: int, depth: int) -> np.ndarray | None:
        """The array written at `start`, if it is one as every encoder writes it."""
        head = _HEAD.match(self._frame, start)
        if head is None:
            return None
        payload, size = head.end(), int.from_bytes(head[head.lastindex or 0], "big")
        tail = _TAIL.match(self._frame, payload + size)
        described = _described(tail[0]) if tail else None
        if tail is None or described is None:
            return None
        typestr, shape = described
        self._position = tail.end()
        self._enter(8 + len(shape), depth + 1)  # the map, and in it the list
        try:
            return view(self._frame, payload, size, typestr, shape)
        except NotAllowedError as error:
            raise _FaultError(ARRAY, str(error)) from None

    def _refuse(self, _: int) -> Any:
        code = self._frame[self._position - 1]
        raise _FaultError(MSGPACK, f"msgpack type 0x{code:02x} is not allowed (ext types and timestamps are not)")


def _constant(value: bool | None) -> Callable[[Reader, int], Any]:
    return lambda *_: value


def _numbers(form: str) -> Callable[[Reader, int], Any]:
    number = struct.Struct(form)
    return lambda reader, _: reader._number(number)


def _sized(form: str, read: Callable[[Reader, int], Any]) -> Callable[[Reader, int], Any]:
    length = struct.Struct(form)
    return lambda reader, _: read(reader, reader._number(length))


def _container(form: str, read: Callable[[Reader, int, int], Any]) -> Callable[[Reader, int], Any]:
    length = struct.Struct(form)
    return lambda reader, depth: read(reader, reader._number(length), depth + 1)


_ONE, _TWO, _FOUR = ">B", ">H", ">I"
_READERS: list[Callable[[Reader, int], Any]] = [  # of the types 0xc0 to 0xdf, in order
    _constant(None),
    Reader._refuse,
    _constant(False),
    _constant(True),
    *(_sized(form, Reader._binary) for form in (_ONE, _TWO, _FOUR)),
    *[Reader._refuse] * 3,
    *(_numbers(form) for form in (">f", ">d", ">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q")),
    *[Reader._refuse] * 5,
    *(_sized(form, Reader._text) for form in (_ONE, _TWO, _FOUR)),
    *(_container(form, Reader._list) for form in (_TWO, _FOUR)),
    *(_container(form, Reader._map) for form in (_TWO, _FOUR)),
]
_KEY_CODES = frozenset({0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB})
