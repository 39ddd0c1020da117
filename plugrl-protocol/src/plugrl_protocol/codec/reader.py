"""The careful reader: msgpack read header by header, every limit checked before anything is built (SPEC 3).

It is the judge. The C unpacker is only a faster way to the same answer (see `decoder`).
"""

import struct
from typing import Any

from plugrl_protocol.codec.arrays import (
    ARRAY_MARKER,
    MAX_DEPTH,
    MAX_ELEMENTS,
    SCALAR_MARKER,
    NotAllowed,
    build_array,
    build_scalar,
)
from plugrl_protocol.errors import RemoteProtocolError

# A str that is not ASCII takes up to four times its bytes in memory, so there is a limit on those of a message.
MAX_WIDE_TEXT = 512 * 2**10

_NUMBERS = {
    code: struct.Struct(">" + form)
    for code, form in zip(range(0xCA, 0xD4), ("f", "d", "B", "H", "I", "Q", "b", "h", "i", "q"), strict=True)
}
_LENGTHS = {
    code: struct.Struct(">" + form)
    for codes, form in (((0xC4, 0xD9), "B"), ((0xC5, 0xDA, 0xDC, 0xDE), "H"), ((0xC6, 0xDB, 0xDD, 0xDF), "I"))
    for code in codes
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_MESSAGE_TYPES = ("metadata", "infer", "action", "feedback")


class Reader:
    """Reads one value from one frame; arrays and large binaries are views on the frame."""

    def __init__(self, frame: memoryview) -> None:
        self._frame = frame
        self._position = 0
        self._elements = 0
        self._wide_text = 0
        self._path: list[str] = []
        self._root = "message"

    def read(self) -> Any:
        """The frame's value.

        Raises:
            RemoteProtocolError: The frame is not exactly one allowed value; the path says where.
        """
        value = self._value(0)
        if self._position != len(self._frame):
            raise self._error("3 codec/msgpack", f"{len(self._frame) - self._position} trailing bytes")
        return value

    def _error(self, clause: str, detail: str) -> RemoteProtocolError:
        return RemoteProtocolError(clause, f"{'.'.join([self._root, *self._path])}: {detail}")

    def _take(self, count: int) -> memoryview:
        start, self._position = self._position, self._position + count
        if self._position > len(self._frame):
            raise self._error("3 codec/msgpack", "the frame ends inside a value")
        return self._frame[start : self._position]

    def _value(self, depth: int) -> Any:
        code = self._take(1)[0]
        if code < 0x80:
            return code
        if code >= 0xE0:
            return code - 0x100
        if code in _NUMBERS:
            form = _NUMBERS[code]
            return form.unpack(self._take(form.size))[0]
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code < 0xC0:
            return self._sized(code, depth)
        if code in _LENGTHS:
            form = _LENGTHS[code]
            return self._long(code, form.unpack(self._take(form.size))[0], depth)
        kind = "the reserved byte 0xc1" if code == 0xC1 else "an ext type"
        raise self._error("3 codec/msgpack", f"{kind} is not allowed")

    def _sized(self, code: int, depth: int) -> Any:
        if code < 0x90:
            return self._map(code & 0x0F, depth + 1)
        if code < 0xA0:
            return self._array(code & 0x0F, depth + 1)
        return self._text(code & 0x1F)

    def _long(self, code: int, length: int, depth: int) -> Any:
        if code <= 0xC6:
            return self._take(length)
        if code <= 0xDB:
            return self._text(length)
        return self._array(length, depth + 1) if code <= 0xDD else self._map(length, depth + 1)

    def _text(self, length: int) -> str:
        raw = self._take(length)
        try:
            text = str(raw, "ascii")
        except UnicodeDecodeError:
            self._wide_text += length
            if self._wide_text > MAX_WIDE_TEXT:
                raise self._error("3 codec/limits", f"over {MAX_WIDE_TEXT} bytes of non-ASCII str") from None
            try:
                return str(raw, "utf-8")
            except UnicodeDecodeError as error:
                raise self._error("3 codec/msgpack", f"str is not UTF-8: {error.reason}") from None
        return text

    def _enter(self, elements: int, depth: int) -> None:
        self._elements += elements
        if depth > MAX_DEPTH:
            raise self._error("3 codec/limits", f"nested deeper than {MAX_DEPTH}")
        if self._elements > MAX_ELEMENTS:
            raise self._error("3 codec/limits", f"over {MAX_ELEMENTS} elements in all containers")

    def _array(self, length: int, depth: int) -> list[Any]:
        self._enter(length, depth)
        values = []
        for index in range(length):
            self._path.append(str(index))
            value = self._value(depth)
            values.append(bytes(value) if type(value) is memoryview else value)
            self._path.pop()
        return values

    def _map(self, length: int, depth: int) -> Any:
        self._enter(2 * length, depth)
        values: dict[str | bytes, Any] = {}
        for _ in range(length):
            key = self._key(depth)
            self._path.append(key if type(key) is str else str(key, "utf-8", "replace"))
            values[key] = self._value(depth)
            if depth == 1 and key == "message_type" and values[key] in _MESSAGE_TYPES:
                self._root = values[key]
            self._path.pop()
        return self._finish(values)

    def _key(self, depth: int) -> str | bytes:
        key = self._value(depth)
        if type(key) is memoryview:
            return bytes(key)
        if type(key) is not str:
            raise self._error("3.1 codec/keys", f"map key: expected str or bin, got {type(key).__name__}")
        return key

    def _finish(self, values: dict[str | bytes, Any]) -> Any:
        try:
            if ARRAY_MARKER in values:
                return build_array(values)
            if SCALAR_MARKER in values:
                return build_scalar(values)
        except NotAllowed as error:
            raise self._error("3.2 codec/array", str(error)) from None
        for key, value in values.items():
            if type(value) is memoryview:
                values[key] = bytes(value)
        return values
