"""Cuts what was read from a socket into WebSocket frames, with few copies.

Nearly every frame a PlugRL client sends is a whole binary message. Those are unmasked here, straight out of the buffer
that the socket was read into; websockets' core would copy them three times. All other frames are for the core.
"""

from __future__ import annotations

import dataclasses

import numpy as np

try:
    from websockets.speedups import apply_mask
except ImportError:  # no C compiler where websockets was installed
    from websockets.utils import apply_mask

READ_SIZE = 2**20
"""Bytes read at once, at most. Memory is only touched as far as a read fills it."""

KEPT_SIZE = 8 * READ_SIZE
"""Largest buffer that is kept for the next message."""

WHOLE_BINARY = 0x82
FIN, OPCODE, MASKED, SIZE = 0x80, 0x0F, 0x80, 0x7F
OPCODES = frozenset({0x0, 0x1, 0x2, 0x8, 0x9, 0xA})
CLOSE = 0x8


@dataclasses.dataclass(slots=True)
class Piece:
    """A part of what was read.

    Attributes:
        data: The payload of a whole binary message, or bytes as they came for the core (valid until the next read).
        is_message: Which of the two.
    """

    data: bytes | memoryview
    is_message: bool


class FrameReader:
    """One connection's read buffer and what is in it.

    Until `begin_frames`, after the peer's close frame, and from the first frame on that is wrong, everything goes to
    the core, which says what is wrong.

    Args:
        max_size: Largest message in bytes.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._buffer = np.empty(READ_SIZE, np.uint8).data
        self._start = 0  # of what was read and not taken
        self._end = 0
        self._raw = True  # everything goes to the core
        self._tail = b""  # the last bytes of the handshake
        self._fragmented = False  # a message in several frames has begun

    def begin_frames(self) -> bool:
        """Note that the request is complete; False when the peer did not wait for the response (RFC 6455, 4.1)."""
        self._raw = False
        return self._tail == b"\r\n\r\n"

    def space(self) -> memoryview:
        """Return where to read to."""
        left = self._end - self._start
        if self._start:
            self._move(self._buffer, left)
        if left == len(self._buffer):
            # Twice what has really come, whatever size a frame says it has.
            self._move(np.empty(2 * left, np.uint8).data, left)
        elif not left and len(self._buffer) > KEPT_SIZE:
            self._buffer = np.empty(READ_SIZE, np.uint8).data
        return self._buffer[self._end :]

    def added(self, nbytes: int) -> None:
        """Note that so many bytes were read to `space`."""
        self._end += nbytes

    def take(self) -> Piece | None:
        """Return the next piece, None when there is none before more is read."""
        head, size = self._head()
        length = self._end - self._start
        if not self._raw:
            if not head or length < head + size:
                return None
            length = head + size
        elif not length:
            return None
        start = self._start
        self._start += length
        frame = self._buffer[start : start + length]
        if self._raw:
            self._tail = (self._tail + bytes(frame[-4:]))[-4:]
            return Piece(frame, is_message=False)
        first = frame[0]
        if first == WHOLE_BINARY and not self._fragmented:
            return Piece(apply_mask(frame[head:], bytes(frame[head - 4 : head])), is_message=True)
        if first & OPCODE < CLOSE:
            self._fragmented = not first & FIN
        self._raw = first & OPCODE == CLOSE
        return Piece(frame, is_message=False)

    def _head(self) -> tuple[int, int]:
        """Return the sizes of head and payload of the next frame, (0, 0) while they are unknown."""
        buffer, start = self._buffer, self._start
        read = self._end - start
        if self._raw or read < 2:
            return 0, 0
        if not buffer[start + 1] & MASKED or buffer[start] & OPCODE not in OPCODES:
            self._raw = True
        size, head = buffer[start + 1] & SIZE, 6
        if size >= 126:
            head = 8 if size == 126 else 14
            if read < head - 4:
                return 0, 0
            size = int.from_bytes(buffer[start + 2 : start + head - 4], "big")
        if size > self._max_size:
            self._raw = True
        return head, size

    def _move(self, target: memoryview, left: int) -> None:
        """Move what is left to the start of a buffer, and use that."""
        target[:left] = bytes(self._buffer[self._start : self._end])
        self._buffer, self._start, self._end = target, 0, left
