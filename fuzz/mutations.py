"""Seeded mutations: of a frame's bytes, of the value it holds, and of a script of frames."""

import copy
import random
import struct
from collections.abc import Sequence
from typing import Any

import msgpack
from conversation_target import LONGEST, Options, read_script, write_script

# First bytes of msgpack values, above all those that say how much follows.
_HEADERS = bytes([*range(0x80, 0xA4), *range(0xC0, 0xE0), 0xBF, 0x00, 0x7F, 0xFF])
_LENGTHS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x1_0000, 0x1_0001, 0x7FFF_FFFF, 0xFFFF_FFFF)
_JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 3, 2**31, 2**63, 2**64 - 1, 0.5, float("nan"), float("inf"), "", "x", "ä", "\0", "\n",
    b"", b"\0" * 8, [], {}, [0, 1], [2, 2], [-1], [True], [1.0], ["x"], [2**62, 4], [0, 2**63], [[]], [1] * 33,
    {"a": 1}, {b"a": 1}, {"": {}}, "|O", "|b1", "<U1", ">U2", "<f2", "<f4", ">i8", "|V8", "<M8[s]", "infer", "feedback",
    {b"__npgeneric__": True, b"data": 1, b"dtype": "<i8"},
    {b"__ndarray__": True, b"data": b"\0" * 8, b"dtype": "<i8", b"shape": [1]},
    {b"__ndarray__": True, b"data": b"\0", b"dtype": "|b1", b"shape": []},
    {b"__ndarray__": True, b"data": b"", b"dtype": "<f8", b"shape": [0, 3]},
    {b"__ndarray__": True, b"data": b"x\0\0\0", b"dtype": "<U1", b"shape": [1]},
)  # fmt: skip
_KEYS = (
    "extra", b"extra", "data", "images", "states", "text", "reuse", "spaces", "info", "episode", "mask", "features",
    b"__ndarray__", b"__npgeneric__", b"shape",
)  # fmt: skip


class Mutator:
    """Makes new inputs from a pool of them; the same seed makes the same.

    Args:
        pool: Frames or scripts, at least one.
        seed: Of the random numbers.
    """

    def __init__(self, pool: Sequence[bytes], seed: int) -> None:
        self.pool = list(pool)
        self._random = random.Random(seed)

    def frame(self) -> bytes:
        """A frame from a pool of frames."""
        return self.mutate_frame(self._random.choice(self.pool), self.pool)

    def script(self) -> bytes:
        """A script from a pool of scripts."""
        options, frames = read_script(self._random.choice(self.pool))
        _, others = read_script(self._random.choice(self.pool))
        kind = self._random.randrange(12)
        if kind == 0:
            options ^= Options(1 << self._random.randrange(4))
        elif kind == 1 and len(frames) > 1:
            del frames[self._random.randrange(len(frames))]
        elif kind == 2 and others:
            frames.insert(self._random.randrange(len(frames) + 1), self._random.choice(others))
        elif kind == 3 and others:
            at = self._random.randrange(len(frames) + 1)
            frames[at:] = others[self._random.randrange(len(others)) :]
        elif kind == 4:
            return self._scramble(write_script(options, frames), self.pool)
        elif frames:
            at = self._random.randrange(len(frames))
            first, frame = frames[at]
            if kind == 5:
                frames[at] = not first, frame
            else:
                known = [each for _, each in (*frames, *others)]
                frames[at] = first, self.mutate_frame(frame, known)[:LONGEST]
        return write_script(options, frames[:12])

    def mutate_frame(self, frame: bytes, others: Sequence[bytes]) -> bytes:
        """A frame a little different from `frame`, perhaps with bytes of the others."""
        if self._random.random() < 0.5:
            try:
                value = msgpack.unpackb(frame, strict_map_key=False)
            except (ValueError, TypeError):  # an unhashable key, or no msgpack at all
                value = None
            if isinstance(value, (dict, list)) and value:
                for _ in range(self._random.choice((1, 1, 1, 2))):
                    self._edit(value)
                return self._pack(value, frame)
        return self._scramble(frame, others)

    def _pack(self, value: Any, otherwise: bytes) -> bytes:
        try:
            return bytes(msgpack.packb(value))
        except (ValueError, OverflowError, RecursionError):
            return otherwise

    def _edit(self, value: dict[Any, Any] | list[Any]) -> None:
        """Replace, drop or add one thing somewhere inside."""
        spot: Any = value
        while True:
            keys = list(spot) if isinstance(spot, dict) else range(len(spot))
            if not keys:
                return
            key = self._random.choice(keys)
            if not isinstance(spot[key], (dict, list)) or not spot[key] or self._random.random() < 0.25:
                break
            spot = spot[key]
        before, kind = spot[key], self._random.randrange(10)
        if kind == 0:
            del spot[key]
        elif kind == 1 and isinstance(spot, dict):
            spot[self._random.choice(_KEYS)] = self._junk()
        elif kind == 2 and isinstance(before, bytes):
            spot[key] = before[: self._random.randrange(len(before) + 1)]
        elif kind == 3 and isinstance(before, bytes):
            spot[key] = self._random.randbytes(len(before))
        elif kind == 4 and isinstance(before, int):
            spot[key] = before + self._random.choice((-1, 1))
        elif kind == 5 and isinstance(before, list):
            spot[key] = before * 2
        else:
            spot[key] = self._junk()

    def _junk(self) -> Any:
        """Something that belongs nowhere; a copy, which later edits may change."""
        return copy.deepcopy(self._random.choice(_JUNK))

    def _scramble(self, data: bytes, others: Sequence[bytes]) -> bytes:
        """Change some bytes."""
        pick, changed = self._random.randrange, bytearray(data)
        for _ in range(self._random.choice((1, 1, 1, 2, 4))):
            at, kind = pick(len(changed) + 1), pick(18)
            if kind < 5:
                changed[at : at + 1] = bytes((pick(256),))
            elif kind < 9:
                changed[at : at + 1] = bytes((_HEADERS[pick(len(_HEADERS))],))
            elif kind < 11:
                del changed[at : at + self._random.choice((1, 1, 2, 5, 40))]
            elif kind < 13:
                changed[at:at] = self._random.randbytes(self._random.choice((1, 1, 2, 5)))
            elif kind < 15:
                other = self._random.choice(others)
                start = pick(len(other) + 1)
                changed[at : at + self._random.choice((4, 12, 60))] = other[start : start + 60]
            elif kind < 17:
                changed[at : at + 5] = bytes((0xC6 + pick(26),)) + struct.pack(">I", self._random.choice(_LENGTHS))
            else:
                del changed[at:]
        return bytes(changed)
