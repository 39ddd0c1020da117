"""Frame -> value (SPEC 3): small frames by msgpack's C unpacker; what it stumbles over, by the careful reader."""

from collections.abc import Iterable
from typing import Any, NoReturn

import msgpack

from plugrl_protocol.codec.arrays import (
    ARRAY_MARKER,
    SCALAR_MARKER,
    NotAllowedError,
    build_array,
    build_scalar,
)
from plugrl_protocol.codec.limits import MAX_DEPTH
from plugrl_protocol.codec.reader import Reader

# The C unpacker allocates a list on reading its header and nests at most 1,024 containers: 4 MiB of lists that never
# fill. And no byte of a frame makes it build more than about 125 bytes: another 4 MiB.
SMALL_FRAME = 32 * 2**10
_SMALL_LIST = 512
_SURELY_ALLOWED = MAX_DEPTH - 2  # in here may still be an array: its map, and in that the list of its shape


def decode(frame: bytes | bytearray | memoryview) -> Any:
    """The value in `frame`: None, bool, int, float, str, bytes, list, dict, and NumPy arrays and scalars.

    Arrays are read-only views; of the frame itself if it is large, so they may be unaligned. A frame that is not
    `bytes` is copied first, so that nothing aliases a buffer that changes. Memory beyond the frame stays under one
    frame + 16 MiB, whatever the frame says. Of a key that comes twice in a map, the last value counts.

    Raises:
        RemoteProtocolError: The frame breaks a rule of SPEC 3; the detail starts with the path of the fault.
    """
    whole = frame if type(frame) is bytes else bytes(frame)
    if len(whole) <= SMALL_FRAME:
        try:
            value = _unpack(whole)
            kind = type(value)
            return _built(value, 1) if kind is dict or kind is list else value
        except Exception:  # noqa: S110  # the careful reader finds out what and where, or accepts the frame after all
            pass
    return Reader(whole).read()


def _unpack(frame: bytes) -> Any:
    return msgpack.unpackb(frame, strict_map_key=True, max_array_len=_SMALL_LIST, max_ext_len=0, ext_hook=_refuse)


def _refuse(*_: object) -> NoReturn:
    raise NotAllowedError("an ext type")


def _built(value: Any, depth: int) -> Any:
    """A container with its ndarray and npgeneric maps replaced by what they stand for; it is edited in place."""
    items: Iterable[tuple[Any, Any]]
    if type(value) is list:
        items = enumerate(value)
    elif ARRAY_MARKER in value:
        return build_array(value)
    elif SCALAR_MARKER in value:
        return build_scalar(value)
    else:
        items = value.items()
    if depth > _SURELY_ALLOWED:
        raise NotAllowedError("deep")
    for key, item in items:
        kind = type(item)
        if kind is dict or kind is list:
            value[key] = _built(item, depth + 1)
    return value
