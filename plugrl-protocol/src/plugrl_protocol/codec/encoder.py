"""Value -> frame, byte for byte as openpi's msgpack_numpy writes it (SPEC 3.2)."""

import threading
from typing import Any

import msgpack
import numpy as np

from plugrl_protocol.codec.arrays import ARRAY_MARKER, MAX_DEPTH, MAX_ELEMENTS, SCALAR_MARKER, NotAllowed, allowed_dtype
from plugrl_protocol.errors import LocalProtocolError


class _Packers(threading.local):
    """One packer a thread: its buffer is reused from frame to frame."""

    def __init__(self) -> None:
        self.packer = msgpack.Packer(default=_to_wire)


def encode(value: Any) -> bytes:
    """The frame for `value`: None, bool, int, float, str, bytes, list, tuple, dict, NumPy arrays and scalars.

    Raises:
        LocalProtocolError: Something in `value` may not travel; the detail starts with its path.
    """
    try:
        _check(value, 0)
        return _packers.packer.pack(value)  # type: ignore[no-any-return]
    except (NotAllowed, ValueError, TypeError, OverflowError) as error:
        raise LocalProtocolError("3 codec/encode", f"message: {error}") from None


def _to_wire(value: Any) -> dict[bytes, Any]:
    if isinstance(value, np.ndarray):
        typestr = value.dtype.str
        allowed_dtype(typestr)
        data = value.data if value.flags.c_contiguous else np.ascontiguousarray(value).data
        return {ARRAY_MARKER: True, b"data": data, b"dtype": typestr, b"shape": value.shape}
    if isinstance(value, np.generic):
        typestr = value.dtype.str
        allowed_dtype(typestr)
        return {SCALAR_MARKER: True, b"data": value.item(), b"dtype": typestr}
    raise NotAllowed(f"a {type(value).__name__} may not travel")


def _check(value: Any, depth: int) -> None:
    if type(value) is dict:
        for key, item in value.items():
            if type(key) is not str and type(key) is not bytes:
                raise NotAllowed(f"map key {key!r}")
            if isinstance(item, (dict, list, tuple)):
                _check(item, depth + 1)
    if depth > MAX_DEPTH:
        raise NotAllowed("too deep")


_packers = _Packers()
