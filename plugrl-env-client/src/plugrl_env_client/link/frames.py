"""Writes and recognises the frames of nearly every message: one whole binary frame (RFC 6455 5.2), with few copies.

`websockets`' core does everything else (handshake, control frames, fragments). Through it a large message would be
copied into fresh memory several times, which takes longer than all other work of an exchange.
"""

import functools
import os
import struct
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

try:
    from websockets.speedups import apply_mask
except ImportError:  # no C compiler where websockets was installed
    from websockets.utils import apply_mask

BINARY = 0x82  # FIN and the opcode of a binary message
_FIN, _CONTROL, _MASKED = 0x80, 0x08, 0x80
_SIZE_16, _SIZE_64 = struct.Struct(">H"), struct.Struct(">Q")
_HEAD = 16  # room for the longest head, 14 bytes, so that the payload is aligned
SMALL = 64 * 2**10  # bytes up to which new memory costs less than NumPy's calls
_KEPT = 64 * 2**20  # a larger buffer is not kept for the next message


class FrameWriter:
    """Masks messages; large ones into one buffer, which is used again and again."""

    def __init__(self) -> None:
        self._buffer = np.empty(SMALL, np.uint8)
        self._keys: list[bytes] = []  # asking the system for four bytes at a time costs more than masking

    def write(self, pieces: Sequence[Any]) -> bytes | memoryview:
        """The frame of a binary message, valid until the next one is written.

        Args:
            pieces: its payload: bytes, and arrays in C order. An array is masked on its way into the frame, and that is
                the only time its bytes are moved.
        """
        if not self._keys:  # unpredictable to whoever chose the message (RFC 6455 10.3)
            self._keys = [key for (key,) in struct.iter_unpack("4s", os.urandom(1024))]
        key = self._keys.pop()
        size = len(pieces[0])
        if size > SMALL or len(pieces) > 1:
            return self._write_large(pieces, key)
        return b"".join((_head(size, _MASKED), key, apply_mask(pieces[0], key)))

    def _write_large(self, pieces: Sequence[Any], key: bytes) -> memoryview:
        size = sum(memoryview(piece).nbytes for piece in pieces)
        self._make_room(size)
        # Eight bytes at a time are masked twice as fast where they are aligned: the first array is.
        before = len(pieces[0]) if len(pieces) > 1 else 0
        begin = at = _HEAD + -before % 8
        for piece in pieces:
            turned = (key * 2)[(at - begin) % 4 :][:4]
            if isinstance(piece, bytes) and len(piece) <= SMALL:
                end = at + len(piece)
                self._buffer.data[at:end] = apply_mask(piece, turned)
            else:
                data = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else piece.reshape(-1).view(np.uint8)
                end = at + len(data)
                _mask(data, turned, self._buffer[at:end])
            at = end
        head = _head(size, _MASKED) + key
        self._buffer.data[begin - len(head) : begin] = head
        return self._buffer.data[begin - len(head) : at]

    def _make_room(self, size: int) -> None:
        room = _HEAD + 8 + size
        if not room <= len(self._buffer) <= max(_KEPT, room):
            self._buffer = np.empty(room, np.uint8)


class FrameSpotter:
    """Finds reads that hold exactly one whole binary frame; knows where frames begin as long as it can.

    Everything else goes to the core. Once a read ends inside the head of a frame, or a message comes in fragments, that
    is so for the rest of the connection.
    """

    def __init__(self) -> None:
        self._owed = 0  # bytes that are still to come of the frame that the core has begun to read
        self._lost = False

    def payload(self, data: memoryview) -> bytes | None:
        """The payload, where `data` is exactly one whole binary frame; otherwise the core has to be fed."""
        head = _head_within(len(data))
        if self._owed or self._lost or not head or data[: len(head)] != head:
            return None
        return data[len(head) :].tobytes()

    def fed(self, data: memoryview, *, handshake: bool = False) -> None:
        """Follow what the core is fed; with `handshake` the server's response, which frames may come along with."""
        at = self._owed
        if handshake:
            end = bytes(data).find(b"\r\n\r\n")
            self._lost = end < 0  # in two reads: rare, and not worth more
            at = end + 4
        while at < len(data) and not self._lost:
            head, size = _measure(data[at : at + 10])
            self._lost = not head or not (data[at] & _FIN or data[at] & _CONTROL)
            at += head + size
        self._owed = at - len(data)


def _mask(data: np.ndarray, key: bytes, out: np.ndarray) -> None:
    """Write uint8[k] `data`, masked, to uint8[k] `out`."""
    words = len(data) // 8
    mask = np.uint64(int.from_bytes(key * 2, sys.byteorder))
    np.bitwise_xor(data[: 8 * words].view(np.uint64), mask, out=out[: 8 * words].view(np.uint64))
    out.data[8 * words :] = apply_mask(data.data[8 * words :], key)


@functools.lru_cache(maxsize=256)
def _head(size: int, masked: int) -> bytes:
    """The head of a binary frame without its key; `masked` is the mask's bit, or 0."""
    if size < 126:
        return struct.pack(">BB", BINARY, masked | size)
    if size < 2**16:
        return struct.pack(">BBH", BINARY, masked | 126, size)
    return struct.pack(">BBQ", BINARY, masked | 127, size)


@functools.lru_cache(maxsize=256)
def _head_within(total: int) -> bytes:
    """The head of the unmasked binary frame that has `total` bytes with it; empty where there is none."""
    for length in (2, 4, 10):
        if total >= length and len(head := _head(total - length, 0)) == length:
            return head
    return b""


def _measure(data: memoryview) -> tuple[int, int]:
    """The sizes of head and payload of an unmasked frame that begins here; a head of 0: it is cut short, or masked."""
    if len(data) < 2:
        return 0, 0
    size = data[1]  # with the mask's bit, which a server must not set, it is above all that is looked for
    if size < 126:
        return 2, size
    head, form = (4, _SIZE_16) if size == 126 else (10, _SIZE_64)
    if size > 127 or len(data) < head:
        return 0, 0
    return head, form.unpack_from(data, 2)[0]
