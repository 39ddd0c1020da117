"""Frame -> value. Small frames go through msgpack's C unpacker, and whatever it stumbles over to the careful reader."""

from typing import Any

import msgpack

from plugrl_protocol.codec.arrays import (
    ARRAY_MARKER,
    MAX_DEPTH,
    SCALAR_MARKER,
    NotAllowed,
    build_array,
    build_scalar,
)
from plugrl_protocol.codec.reader import Reader

# The C unpacker allocates a list as soon as it reads its header, at most 1,024 of them inside one another. With these
# two limits it cannot take 8 MiB, whatever the frame says.
_SMALL_FRAME = 32 * 2**10
_SMALL_LIST = 512


def decode(frame: bytes | bytearray | memoryview) -> Any:
    """The value in `frame`: None, bool, int, float, str, bytes, list, dict, and NumPy arrays and scalars.

    Arrays are read-only views, of the frame itself if it is large (so they may be unaligned). A frame that is not
    `bytes` is copied first, so that nothing aliases a buffer that changes.

    Raises:
        RemoteProtocolError: The frame breaks a rule of SPEC 3; the detail starts with the path of the fault. Memory
            beyond the frame stays under one frame + 16 MiB.
    """
    whole = frame if type(frame) is bytes else bytes(frame)
    if len(whole) <= _SMALL_FRAME:
        try:
            return _build(_unpack(whole), 0)
        except Exception:  # noqa: BLE001, S110  # the careful reader finds out what and where, or accepts it after all
            pass
    return _careful(whole)


def _careful(whole: bytes) -> Any:
    value = Reader(memoryview(whole)).read()
    return bytes(value) if type(value) is memoryview else value


def _refuse_ext(code: int, data: bytes) -> Any:
    raise NotAllowed("ext type")


def _unpack(frame: bytes) -> Any:
    return msgpack.unpackb(frame, strict_map_key=True, max_array_len=_SMALL_LIST, max_ext_len=0, ext_hook=_refuse_ext)


def _build(value: Any, depth: int) -> Any:
    """`value` with its ndarray and npgeneric maps replaced by what they describe; maps and lists are edited in place."""
    kind = type(value)
    if kind is dict:
        if depth == MAX_DEPTH:
            raise NotAllowed("too deep")
        if ARRAY_MARKER in value:
            if depth + 1 == MAX_DEPTH:
                raise NotAllowed("too deep")
            return build_array(value)
        if SCALAR_MARKER in value:
            return build_scalar(value)
        for key, item in value.items():
            if type(item) is dict or type(item) is list:
                value[key] = _build(item, depth + 1)
    elif kind is list:
        if depth == MAX_DEPTH:
            raise NotAllowed("too deep")
        for index, item in enumerate(value):
            if type(item) is dict or type(item) is list:
                value[index] = _build(item, depth + 1)
    return value
