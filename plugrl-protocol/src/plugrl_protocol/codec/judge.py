"""What may be encoded: every rule of SPEC 3 for a value that is about to travel, with the path of what breaks one."""

from typing import Any

import msgpack
import numpy as np

from plugrl_protocol.codec.arrays import (
    ARRAY_MARKER,
    SCALAR_MARKER,
    NotAllowedError,
    allowed_typestr,
    check_in_pieces,
    element,
    flat_bytes,
)
from plugrl_protocol.codec.limits import MAX_DEPTH, MAX_DIMENSIONS, MAX_ELEMENTS, MAX_WIDE_TEXT
from plugrl_protocol.errors import LocalProtocolError, show_key

_CLAUSE = "3 codec/encode"


def check_encodable(value: Any) -> None:
    """Check that every peer can decode what `value` encodes to.

    Raises:
        LocalProtocolError: Something in it may not travel; the detail starts with its path.
    """
    root = value.get("message_type") if isinstance(value, dict) else None
    _Judge().check(value, show_key(root) if isinstance(root, str) else "message", 0)


class _Judge:
    """Counts what one message holds while it looks at it."""

    def __init__(self) -> None:
        self._elements = 0
        self._wide_text = 0

    def check(self, value: Any, path: str, depth: int) -> None:
        """Check the value at `path`, which is inside `depth` containers."""
        try:
            if isinstance(value, str):
                self._text(value)
            elif isinstance(value, dict):
                self._map(value, path, depth + 1)
            elif isinstance(value, (list, tuple)) and not isinstance(value, msgpack.ExtType):
                self._enter(len(value), depth + 1)
                for index, item in enumerate(value):
                    self.check(item, f"{path}.{index}", depth + 1)
            elif isinstance(value, np.ndarray):
                self._enter(8 + value.ndim, depth + 2)
                check_array(value)
            else:
                _check_leaf(value)
        except NotAllowedError as error:
            raise LocalProtocolError(_CLAUSE, f"{path}: {error}") from None

    def _map(self, value: dict[Any, Any], path: str, depth: int) -> None:
        self._enter(2 * len(value), depth)
        for key, item in value.items():
            if not isinstance(key, (str, bytes)):
                raise NotAllowedError(f"map key: expected str or bytes, got {key!r:.60}")
            if key in (ARRAY_MARKER, SCALAR_MARKER):
                raise NotAllowedError(f"map key {key!r} is the marker of an array or scalar")
            if isinstance(key, str):
                self._text(key)
            self.check(item, f"{path}.{show_key(key)}", depth)

    def _enter(self, elements: int, depth: int) -> None:
        self._elements += elements
        if depth > MAX_DEPTH:
            raise NotAllowedError(f"nested deeper than {MAX_DEPTH}")
        if self._elements > MAX_ELEMENTS:
            raise NotAllowedError(f"expected at most {MAX_ELEMENTS} elements in a message")

    def _text(self, value: str) -> None:
        if value.isascii():
            return
        try:
            self._wide_text += len(value.encode())
        except UnicodeEncodeError as error:
            raise NotAllowedError(f"str is not UTF-8: {error.reason}") from None
        if self._wide_text > MAX_WIDE_TEXT:
            raise NotAllowedError(f"expected at most {MAX_WIDE_TEXT} bytes of non-ASCII str in a message")


def check_array(value: np.ndarray) -> None:
    """Check one array.

    Raises:
        NotAllowedError: It may not travel.
    """
    check = element(value.dtype.str).check
    check_extent(value.ndim, value.nbytes)
    if isinstance(value, np.ma.MaskedArray):
        raise NotAllowedError("a masked array may not travel")
    if check is not None:
        check_in_pieces(check, flat_bytes(value))


def check_extent(ndim: int, nbytes: int) -> None:
    """Check the size of one array.

    Raises:
        NotAllowedError: msgpack, or some NumPy, cannot hold it.
    """
    if ndim > MAX_DIMENSIONS:
        raise NotAllowedError(f"expected at most {MAX_DIMENSIONS} dimensions, got {ndim}")
    if nbytes >= 2**32:
        raise NotAllowedError(f"expected less than 4 GiB, got {nbytes} bytes")


def _check_leaf(value: Any) -> None:
    if isinstance(value, int):  # bool too
        if not -(2**63) <= value < 2**64:
            raise NotAllowedError("an int of more than 64 bits may not travel")
    elif isinstance(value, np.generic) and not isinstance(value, (float, bytes)):
        allowed_typestr(value.dtype)
    elif value is not None and not isinstance(value, (float, bytes, bytearray)):
        raise NotAllowedError(f"a {type(value).__name__} may not travel")
