"""What an array on the wire may be: the dtype allow-list and the checks before NumPy sees a byte (SPEC 3.2, 3.3)."""

import codecs
import functools
import re
from typing import Any

import numpy as np

MAX_DEPTH = 16
MAX_ELEMENTS = 65_536
MAX_DIMENSIONS = 32  # NumPy 1's own limit, so that every peer agrees

ARRAY_MARKER = b"__ndarray__"
SCALAR_MARKER = b"__npgeneric__"

_UNICODE = re.compile(r"[<>]U([1-9][0-9]{0,6})")
_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}
_NUMERIC = {
    f"{order}{kind}{size}": np.dtype(f"{order}{kind}{size}")
    for kind, sizes in _SIZES.items()
    for size in sizes
    for order in ("<>|" if size == 1 else "<>")  # `|` says that byte order does not matter
}


class NotAllowed(ValueError):
    """An array or scalar that may not travel; the caller knows its path, and whose fault it is."""


@functools.lru_cache(maxsize=256)
def _unicode_dtype(typestr: str) -> np.dtype[Any]:
    if not _UNICODE.fullmatch(typestr):
        raise NotAllowed(f"dtype {typestr!r:.40} is not allowed; expected b1, i1-i8, u1-u8, f2-f8 or U")
    return np.dtype(typestr)


def allowed_dtype(typestr: object) -> np.dtype[Any]:
    """The dtype that `typestr` names, if it is on the list of SPEC 3.3.

    Raises:
        NotAllowed: It is not on the list, or not a string.
    """
    if type(typestr) is not str:
        raise NotAllowed(f"dtype: expected str, got {type(typestr).__name__}")
    return _NUMERIC.get(typestr) or _unicode_dtype(typestr)


def build_array(wire: dict[Any, Any]) -> np.ndarray:
    """The array that a decoded ndarray map describes, a read-only view on its `data`.

    Raises:
        NotAllowed: Anything about the map is not exactly as SPEC 3.2 has it.
    """
    if len(wire) != 4 or wire[ARRAY_MARKER] is not True:
        raise NotAllowed("expected exactly __ndarray__ (true), data, dtype and shape")
    try:
        data, typestr, shape = wire[b"data"], wire[b"dtype"], wire[b"shape"]
    except KeyError as missing:
        raise NotAllowed(f"array without {missing.args[0].decode()}") from None
    dtype = allowed_dtype(typestr)
    if type(data) is not bytes and type(data) is not memoryview:
        raise NotAllowed(f"data: expected bin, got {type(data).__name__}")
    size = dtype.itemsize
    for length in _checked_shape(shape):
        size *= length
    if size != len(data):
        raise NotAllowed(f"data: expected {size} bytes for {typestr} {shape}, got {len(data)}")
    if dtype.kind in "bU":
        _check_content(data, dtype)
    try:
        return np.ndarray(shape, dtype, data)
    except ValueError:  # only zero-sized arrays come here: the other dimensions overflow
        raise NotAllowed(f"shape {shape} is too large") from None


def _checked_shape(shape: Any) -> list[int]:
    if type(shape) is not list or len(shape) > MAX_DIMENSIONS:
        raise NotAllowed(f"shape: expected a list of at most {MAX_DIMENSIONS} ints")
    for length in shape:
        if type(length) is not int or length < 0:
            raise NotAllowed(f"shape: expected non-negative ints, got {shape!r:.60}")
    return shape


def _check_content(data: bytes | memoryview, dtype: np.dtype[Any]) -> None:
    """Refuse bytes that NumPy would take on trust: a bool that is neither 0 nor 1, a character that does not exist."""
    if dtype.kind == "b":
        if bytes(data).strip(b"\0\1"):
            raise NotAllowed("data: expected bools of 0 and 1")
        return
    try:
        (codecs.utf_32_le_decode if dtype.str[0] == "<" else codecs.utf_32_be_decode)(data, "strict", True)
    except UnicodeDecodeError as error:
        raise NotAllowed(f"data: not UTF-32: {error.reason}") from None


def build_scalar(wire: dict[Any, Any]) -> np.generic:
    """The NumPy scalar that a decoded npgeneric map describes.

    Raises:
        NotAllowed: Anything about the map is not exactly as SPEC 3.2 has it.
    """
    if len(wire) != 3 or wire[SCALAR_MARKER] is not True or b"data" not in wire or b"dtype" not in wire:
        raise NotAllowed("expected exactly __npgeneric__ (true), data and dtype")
    data, dtype = wire[b"data"], allowed_dtype(wire[b"dtype"])
    expected = {"b": (bool,), "i": (int,), "u": (int,), "f": (float, int)}.get(dtype.kind, ())
    if type(data) not in expected:
        raise NotAllowed(f"data: {type(data).__name__} is no {dtype.str} scalar")
    try:
        with np.errstate(all="ignore"):  # a float too large for its dtype is inf, as everywhere in NumPy
            return dtype.type(data)  # type: ignore[no-any-return]
    except OverflowError:
        raise NotAllowed(f"data: {data} does not fit {dtype.str}") from None
