"""What an array on the wire may be: the dtype allow-list, and the checks before NumPy sees a byte (SPEC 3.2, 3.3)."""

import codecs
import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from plugrl_protocol.codec.limits import MAX_DIMENSIONS

ARRAY_MARKER = b"__ndarray__"
SCALAR_MARKER = b"__npgeneric__"

# How openpi's encoder, and so ours, writes an array: these bytes, with the payload, the dtype and the shape between.
TO_DATA = b"\x84\xc4\x0b__ndarray__\xc3\xc4\x04data"
TO_DTYPE = b"\xc4\x05dtype"
TO_SHAPE = b"\xc4\x05shape"

_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}
_UNICODE = re.compile(r"[<>]U[1-9][0-9]{0,7}", re.ASCII)
_SCALAR_TYPES: dict[str, tuple[type, ...]] = {"b": (bool,), "i": (int,), "u": (int,), "f": (float, int)}
_PIECE = 64 * 2**10


Check: TypeAlias = Callable[[Any], None]
"""Takes bytes-like data, its length in bytes, and raises NotAllowedError."""


class NotAllowedError(ValueError):
    """Something that may not travel. The caller knows its path and whose fault it is."""


class Element(NamedTuple):
    """What the elements of an array on the wire are.

    Attributes:
        dtype: Their dtype.
        size: Bytes of one.
        check: Refuses bytes that NumPy would take on trust; None where there are no wrong ones.
    """

    dtype: np.dtype[Any]
    size: int
    check: Check | None


def element(typestr: object) -> Element:
    """The elements that `typestr` names, if it is on the list of SPEC 3.3.

    Raises:
        NotAllowedError: It is not on the list, or not a str.
    """
    if type(typestr) is not str:
        raise NotAllowedError(f"dtype: expected str, got {type(typestr).__name__}")
    return _NUMERIC.get(typestr) or _unicode(typestr)


def allowed_dtype(typestr: object) -> np.dtype[Any]:
    """The dtype that `typestr` names, if it is on the list of SPEC 3.3.

    Raises:
        NotAllowedError: It is not on the list, or not a str.
    """
    return element(typestr).dtype


def allowed_typestr(dtype: np.dtype[Any]) -> str:
    """The typestr of `dtype`, if it is on the list of SPEC 3.3.

    Raises:
        NotAllowedError: It is not on the list.
    """
    element(dtype.str)
    return dtype.str


@functools.lru_cache(maxsize=256)
def _unicode(typestr: str) -> Element:
    if not _UNICODE.fullmatch(typestr):
        raise NotAllowedError(f"dtype: expected b1, i1-i8, u1-u8, f2-f8 or U, got {typestr[:40]!r}")
    dtype = np.dtype(typestr)
    decode = codecs.utf_32_le_decode if typestr[0] == "<" else codecs.utf_32_be_decode
    return Element(dtype, dtype.itemsize, functools.partial(_check_text, decode))


def _check_text(decode: Callable[[Any, str, bool], object], data: Any) -> None:
    try:
        decode(data, "strict", True)
    except UnicodeDecodeError as error:
        raise NotAllowedError(f"data: not UTF-32: {error.reason}") from None


def _check_bools(data: Any) -> None:
    if bytes(data).strip(b"\0\1"):
        raise NotAllowedError("data: expected bools of 0 or 1")


def check_in_pieces(check: Check, data: Any) -> None:
    """Check data of any size; a look at a piece takes several times its memory."""
    for start in range(0, len(data), _PIECE):
        check(data[start : start + _PIECE])


_NUMERIC = {
    order + name: Element(np.dtype(order + name), size, _check_bools if kind == "b" else None)
    for kind, sizes in _SIZES.items()
    for size in sizes
    for name in (f"{kind}{size}",)
    for order in ("<>|" if size == 1 else "<>")  # `|`: byte order does not matter
}


def view(buffer: bytes | memoryview, start: int, size: int, typestr: object, shape: object) -> np.ndarray:
    """The array whose bytes are `buffer[start : start + size]`, without a copy.

    Args:
        buffer: Read-only bytes, of which the caller has checked that the range is inside.
        start: Offset of the first element.
        size: Number of bytes.
        typestr: Whatever the peer wrote under `dtype`.
        shape: Whatever the peer wrote under `shape`.

    Raises:
        NotAllowedError: They do not describe exactly one allowed array.
    """
    dtype, expected, check = element(typestr)
    if type(shape) is not list or len(shape) > MAX_DIMENSIONS:
        raise NotAllowedError(f"shape: expected a list of at most {MAX_DIMENSIONS} ints")
    for length in shape:
        if type(length) is not int or length < 0:
            raise NotAllowedError("shape: expected ints >= 0")
        expected *= length
    if expected != size:
        raise NotAllowedError(f"data: expected {expected} bytes for {typestr} {shape}, got {size}")
    if check is not None:
        if size <= _PIECE:
            check(buffer[start : start + size])
        else:
            check_in_pieces(check, memoryview(buffer)[start : start + size])
    try:
        return np.ndarray(shape, dtype, buffer, start)
    except (ValueError, OverflowError):  # no bytes, and the other dimensions overflow
        raise NotAllowedError(f"shape: {shape} is too large") from None


def flat_bytes(value: np.ndarray) -> np.ndarray:
    """The bytes of an array in C order, u1[nbytes]; a copy only if they do not lie like that."""
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def build_array(wire: dict[Any, Any]) -> np.ndarray:
    """The array that a decoded ndarray map describes, a read-only view on its `data`.

    Raises:
        NotAllowedError: The map is not exactly as SPEC 3.2 has it.
    """
    try:
        marker, data, typestr, shape = wire[ARRAY_MARKER], wire[b"data"], wire[b"dtype"], wire[b"shape"]
    except KeyError as missing:
        raise NotAllowedError(f"{missing.args[0].decode()}: missing") from None
    if marker is not True or len(wire) != 4:
        raise NotAllowedError("expected exactly __ndarray__ (true), data, dtype and shape")
    if type(data) is not bytes and type(data) is not memoryview:
        raise NotAllowedError(f"data: expected bin, got {'nil' if data is None else type(data).__name__}")
    return view(data, 0, len(data), typestr, shape)


def build_scalar(wire: dict[Any, Any]) -> np.generic:
    """The NumPy scalar that a decoded npgeneric map describes.

    Raises:
        NotAllowedError: The map is not exactly as SPEC 3.2 has it.
    """
    if len(wire) != 3 or wire[SCALAR_MARKER] is not True or b"data" not in wire or b"dtype" not in wire:
        raise NotAllowedError("expected exactly __npgeneric__ (true), data and dtype")
    data, dtype = wire[b"data"], allowed_dtype(wire[b"dtype"])
    if type(data) not in _SCALAR_TYPES.get(dtype.kind, ()):
        raise NotAllowedError(f"data: a {type(data).__name__} is no {dtype.str} scalar")
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= data <= np.iinfo(dtype).max:  # NumPy 1 would wrap it
        raise NotAllowedError(f"data: {data} does not fit {dtype.str}")
    with np.errstate(all="ignore"):  # a number too large for a float is inf, as everywhere in NumPy
        return dtype.type(data)  # type: ignore[no-any-return]
