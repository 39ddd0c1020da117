"""Value -> frame, byte for byte as openpi writes it (SPEC 3.2).

A frame is put together from pieces: msgpack's packer makes the small ones, and an array's bytes are a piece of their
own, so that large ones are copied once, into the frame. Ordinary maps are checked while they are written; anything
unusual goes to the judge first. Whatever passes, a decoder accepts.
"""

import functools
import math
import struct
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import msgpack
import numpy as np

from plugrl_protocol.codec.arrays import (
    SCALAR_MARKER,
    TO_DATA,
    TO_DTYPE,
    TO_SHAPE,
    Check,
    NotAllowedError,
    allowed_typestr,
    check_in_pieces,
    element,
    flat_bytes,
)
from plugrl_protocol.codec.judge import check_encodable, check_extent
from plugrl_protocol.codec.limits import MAX_DEPTH, MAX_DIMENSIONS, MAX_ELEMENTS, MAX_WIDE_TEXT

Pieces: TypeAlias = list[Any]
"""What a frame is joined from: bytes, and arrays whose bytes lie in C order."""
Take: TypeAlias = Callable[[np.ndarray], Any]
"""Gets the piece with an array's bytes."""

_LARGE = 8 * 2**10  # bytes of an array that are worth more than a short detour
_APART = 32 * 2**10  # bytes of an array that are worth a piece of their own to whoever sends the frame
_SHORT_TEXT = 64  # characters; longer text is hardly ever the same twice
_NO_KEY = object()
_MOST_KNOWN = 4096
_ORDINARY = frozenset({str, bool, int, float, type(None)})
_ORDINARY_ITEMS = MAX_ELEMENTS // (8 + MAX_DIMENSIONS)  # an item is at most an array: a map of 4 and its shape
_ORDINARY_DEPTH = MAX_DEPTH - 2  # the same two levels


def encode(value: Any) -> bytes:
    """The frame for `value`: None, bool, int, float, str, bytes, list, tuple, dict, NumPy arrays and scalars.

    Raises:
        LocalProtocolError: Something in `value` may not travel; the detail starts with its path.
    """
    pieces, judged = _written(value)
    frame = b"".join(pieces)
    if not judged and len(frame) >= MAX_WIDE_TEXT and _text_bytes(pieces) >= MAX_WIDE_TEXT:
        check_encodable(value)
    return frame


def encode_pieces(value: Any) -> Pieces:
    """As `encode`, the frame in pieces to be joined: bytes and, not copied, the memory of large arrays in C order.

    Raises:
        LocalProtocolError: As for `encode`.
    """
    pieces, judged = _written(value)
    if not judged and _text_bytes(pieces) >= MAX_WIDE_TEXT:
        check_encodable(value)
    frame: Pieces = []
    begin = 0
    for at, piece in enumerate(pieces):
        if type(piece) is not bytes and piece.nbytes >= _APART:
            frame += (b"".join(pieces[begin:at]), piece)
            begin = at + 1
    frame.append(b"".join(pieces[begin:]))
    return frame


def _written(value: Any) -> tuple[Pieces, bool]:
    """The pieces of a frame, and whether the judge has seen it; otherwise its text has yet to be measured."""
    packer = _packers.packer
    pieces: Pieces = []
    try:
        if type(value) is dict:
            pieces.append(packer.pack_map_header(len(value)))
            if _write_ordinary(value, packer, pieces, 1) <= _ORDINARY_ITEMS:
                return pieces, False
    except (ValueError, TypeError, OverflowError):
        pass  # the judge finds out what and where, or has nothing against it
    check_encodable(value)
    pieces.clear()
    _write(value, packer, pieces)
    return pieces, True


def _write_ordinary(value: dict[Any, Any], packer: msgpack.Packer, pieces: Pieces, depth: int) -> int:
    """Append the pieces of the entries of a map that holds only ordinary things; returns how many items are in it.

    Raises:
        NotAllowedError: It takes a closer look.
    """
    if depth > _ORDINARY_DEPTH:
        raise NotAllowedError("deep")
    items = 2 * len(value)
    for key, item in value.items():
        kind = type(item)
        if kind is np.ndarray:
            known = _known.get(key)
            if known is None or known[0] is not item.dtype or known[1] != item.shape:
                known = _learn(key, item.dtype, item.shape)
            pieces += (known[2], known[3](item), known[4])
        elif type(key) is not str:
            raise NotAllowedError("unusual key")
        elif kind is dict:
            pieces.append(_map_header(key, len(item)))
            items += _write_ordinary(item, packer, pieces, depth + 1) if item else 0
        elif kind is str and len(item) < _SHORT_TEXT:
            pieces.append(_text_field(key, item))
        elif kind in _ORDINARY:
            pieces += (packer.pack(key), packer.pack(item))
        else:
            raise NotAllowedError("unusual value")
    return items


_Known: TypeAlias = tuple[np.dtype[Any], tuple[int, ...], bytes, Take, bytes]
_known: dict[str, _Known] = {}
"""Key -> dtype, shape and layout of the last array under it: most messages look like the one before."""


def _learn(key: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> _Known:
    known = (dtype, shape, *_layout(key, dtype, shape))
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known[key] = known
    return known


@functools.lru_cache(maxsize=4096)
def _map_header(key: str, length: int) -> bytes:
    packer = msgpack.Packer()
    return bytes(packer.pack(key) + packer.pack_map_header(length))


@functools.lru_cache(maxsize=1024)
def _text_field(key: str, text: str) -> bytes:
    return bytes(msgpack.packb(key) + msgpack.packb(text))


def _text_bytes(pieces: Pieces) -> int:
    """At least the bytes of all text in a frame: its pieces without the large arrays."""
    return sum(len(piece) for piece in pieces if type(piece) is bytes)


def _write(value: Any, packer: msgpack.Packer, pieces: Pieces) -> None:
    """Append the pieces of anything that the judge has passed."""
    if isinstance(value, dict):
        pieces.append(packer.pack_map_header(len(value)))
        for key, item in value.items():
            pieces.append(packer.pack(key))
            _write(item, packer, pieces)
    elif isinstance(value, (list, tuple)):
        pieces.append(packer.pack_array_header(len(value)))
        for item in value:
            _write(item, packer, pieces)
    elif isinstance(value, np.ndarray):
        before, take, after = _layout(_NO_KEY, value.dtype, value.shape)
        pieces += (before, take(np.asarray(value)), after)
    elif isinstance(value, np.generic) and not isinstance(value, (float, str, bytes)):
        typestr = allowed_typestr(value.dtype)
        pieces.append(packer.pack({SCALAR_MARKER: True, b"data": value.item(), b"dtype": typestr}))
    else:
        pieces.append(packer.pack(value))


@functools.lru_cache(maxsize=4096)
def _layout(key: object, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[bytes, Take, bytes]:
    """How such an array is written: what comes before its bytes (its key in a map, too), they, what comes after them.

    Raises:
        NotAllowedError: Such an array may not travel, or not under such a key.
    """
    if key is not _NO_KEY and type(key) is not str:
        raise NotAllowedError("unusual key")
    check, size = element(dtype.str).check, math.prod(shape) * dtype.itemsize
    check_extent(len(shape), size)
    take: Take
    if size < _LARGE:
        take = np.ndarray.tobytes if check is None else functools.partial(_small, check)
        if dtype.kind == "b":
            take = _small_bools
    else:
        take = np.ascontiguousarray if check is None else functools.partial(_large, check)
    before = array_head(size)
    after = TO_DTYPE + msgpack.packb(dtype.str) + TO_SHAPE + msgpack.packb(shape)
    return before if key is _NO_KEY else msgpack.packb(key) + before, take, after


def _small(check: Check, value: np.ndarray) -> Any:
    return _checked(check, value.tobytes())


@functools.lru_cache(maxsize=512)
def _checked(check: Check, data: bytes) -> bytes:
    """Small data that has passed its check; a task's text is the same in every message."""
    check(data)
    return data


def _small_bools(value: np.ndarray) -> bytes:
    data = value.tobytes()
    if data.strip(b"\0\1"):
        raise NotAllowedError("data: expected bools of 0 or 1")
    return data


def _large(check: Check, value: np.ndarray) -> Any:
    data = flat_bytes(value)
    check_in_pieces(check, data)
    return data


def array_head(size: int) -> bytes:
    """What comes before the bytes of an array of so many: no other part of a frame is like it."""
    return TO_DATA + _bin_header(size)


def _bin_header(size: int) -> bytes:
    if size < 2**8:
        return struct.pack(">BB", 0xC4, size)
    return struct.pack(">BH", 0xC5, size) if size < 2**16 else struct.pack(">BI", 0xC6, size)


class _Packers(threading.local):
    """A packer for each thread: it has a buffer that is reused from piece to piece."""

    def __init__(self) -> None:
        self.packer = msgpack.Packer()


_packers = _Packers()
