"""Value -> frame, byte for byte as openpi writes it (SPEC 3.2).

Ordinary maps take a glance and msgpack's C packer; anything unusual goes to the judge first. Whatever passes, a
decoder accepts.
"""

import struct
import threading
from typing import Any

import msgpack
import numpy as np

from plugrl_protocol.codec.arrays import (
    ARRAY_MARKER,
    NUMERIC_TYPESTRS,
    SCALAR_MARKER,
    TO_DATA,
    TO_DTYPE,
    TO_SHAPE,
    NotAllowedError,
    allowed_typestr,
    check_bools,
    check_content,
)
from plugrl_protocol.codec.judge import check_encodable, check_extent
from plugrl_protocol.codec.limits import MAX_DEPTH, MAX_DIMENSIONS, MAX_ELEMENTS, MAX_WIDE_TEXT

_LARGE = 128 * 2**10  # from here on the bytes of an array are copied once, straight into the frame
_ORDINARY = frozenset({str, np.ndarray, bool, int, float, type(None)})
_GLANCE_ITEMS = MAX_ELEMENTS // (8 + MAX_DIMENSIONS)  # an item is at most an array: a map of 4 and its shape
_GLANCE_DEPTH = MAX_DEPTH - 2  # the same two levels
_BIN32 = struct.Struct(">BI")


def encode(value: Any) -> bytes:
    """The frame for `value`: None, bool, int, float, str, bytes, list, tuple, dict, NumPy arrays and scalars.

    Raises:
        LocalProtocolError: Something in `value` may not travel; the detail starts with its path.
    """
    frame = None
    try:
        if type(value) is dict and _glance(value, 1) <= _GLANCE_ITEMS:
            frame = _write(value)
            if len(frame) < MAX_WIDE_TEXT:
                return frame
    except (ValueError, TypeError, OverflowError):
        pass  # the judge finds out what and where, or has nothing against it
    check_encodable(value)
    return _write(value) if frame is None else frame


def _glance(value: dict[Any, Any], depth: int) -> int:
    """Count the items of a map that holds only ordinary things.

    Raises:
        NotAllowedError: It takes a closer look.
    """
    if depth > _GLANCE_DEPTH:
        raise NotAllowedError("deep")
    items = 2 * len(value)
    for key, item in value.items():
        if type(key) is not str:
            raise NotAllowedError("unusual key")
        if type(item) is dict:
            items += _glance(item, depth + 1)
        elif type(item) not in _ORDINARY:
            raise NotAllowedError("unusual value")
    return items


class _LargeArrayError(Exception):
    """The packer met an array that is not to be copied through its buffer."""


def _expand(value: Any) -> dict[bytes, Any]:
    """The map that stands for an array or scalar: openpi's keys, in openpi's order."""
    if type(value) is np.ndarray:
        data, typestr = value.data, NUMERIC_TYPESTRS.get(value.dtype)
        if typestr is None or not data.c_contiguous or data.ndim > MAX_DIMENSIONS:
            data, typestr = _data(value), allowed_typestr(value.dtype)
        elif typestr == "|b1":
            check_bools(data)
        if data.nbytes >= _LARGE:
            raise _LargeArrayError
        return {ARRAY_MARKER: True, b"data": data, b"dtype": typestr, b"shape": value.shape}
    if isinstance(value, np.generic):
        return {SCALAR_MARKER: True, b"data": value.item(), b"dtype": allowed_typestr(value.dtype)}
    if isinstance(value, np.ndarray):
        return _expand(np.asarray(value))
    raise NotAllowedError("unusual value")


def _data(value: np.ndarray) -> memoryview:
    """The array's bytes in C order, copied only if they are not.

    Raises:
        NotAllowedError: The array may not travel.
    """
    check_extent(value)
    data = np.ascontiguousarray(value).data
    check_content(data, value.dtype)
    return data


class _Packers(threading.local):
    """A packer for each thread: its buffer is reused from frame to frame."""

    def __init__(self) -> None:
        self.packer = msgpack.Packer(default=_expand)


_packers = _Packers()


def _write(value: Any) -> bytes:
    pack = _packers.packer.pack
    try:
        return pack(value)  # type: ignore[no-any-return]
    except _LargeArrayError:
        pieces: list[bytes | memoryview] = []
        _write_pieces(value, pieces)
        return b"".join(pieces)


def _write_pieces(value: Any, pieces: list[bytes | memoryview]) -> None:
    """Append what `value` encodes to; each large array's bytes are a piece of their own."""
    packer = _packers.packer
    if isinstance(value, dict):
        pieces.append(packer.pack_map_header(len(value)))
        for key, item in value.items():
            pieces.append(packer.pack(key))
            _write_pieces(item, pieces)
    elif isinstance(value, (list, tuple)):
        pieces.append(packer.pack_array_header(len(value)))
        for item in value:
            _write_pieces(item, pieces)
    elif isinstance(value, np.ndarray) and value.nbytes >= _LARGE:
        data = _data(value)
        head = TO_DATA + _BIN32.pack(0xC6, data.nbytes)
        typestr, shape = packer.pack(allowed_typestr(value.dtype)), packer.pack(value.shape)
        pieces += [head, data, TO_DTYPE + typestr + TO_SHAPE + shape]
    else:
        pieces.append(packer.pack(value))
