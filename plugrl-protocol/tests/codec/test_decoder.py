"""Decode trusts nothing (SPEC 3): it returns a value or raises the one error, in bounded memory."""

import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plugrl_protocol.codec import decode, decoder, encode
from plugrl_protocol.codec.reader import Reader
from plugrl_protocol.errors import RemoteProtocolError
from plugrl_protocol.messages import Feedback, Metadata, message_from_wire
from plugrl_protocol.spaces import BoxSpace, Declaration

Make = Callable[..., Any]
MIB = 2**20


@pytest.fixture
def frames(infer: Make, action: Make, feedback: Make) -> list[bytes]:
    """A real frame of each message type."""
    declaration = Declaration(BoxSpace((2,), np.dtype("f4"), -np.ones(2), np.ones(2)), "env-v1", 3, 200, 0)
    info = {"episode": {"r": np.ones(2), "l": np.ones(2, int), "s": np.ones(2, bool)}, "note": "x"}
    messages = [
        Metadata({"protocol_version": 1, "features": ["declare-spaces"], "action_horizon": 4, "x": np.float32(2)}),
        infer([4, 0], reuse=np.zeros(2, bool), spaces=declaration),
        action([4, 0]),
        feedback([0, 4], info=info),
    ]
    return [encode(message.to_wire()) for message in messages]


def swallow(frame: bytes) -> str:
    """Do with a frame what an end does with one it received; returns how it ended."""
    try:
        message = message_from_wire(decode(frame))
    except RemoteProtocolError as error:
        return error.clause
    if isinstance(message, Feedback):
        list(message.info_rows())
    return "accepted"


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RemoteProtocolError as error:
        return str(error)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (one.dtype.str, one.shape, one.tobytes()) == (other.dtype.str, other.shape, other.tobytes())
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other or (one != one and other != other))


HEADERS = bytes([*range(0x80, 0xA4), *range(0xC0, 0xE0), 0xBF, 0x00, 0x7F, 0xFF])


class Mutator:
    """Seeded mutations of frames: of their bytes, and of the values they hold."""

    junk: tuple[Any, ...] = (
        None, True, False, 0, -1, 3, 2**63, 2**64 - 1, 0.5, float("nan"), "", "x", "\0", b"", b"\0" * 8, [], {}, [0, 1],
        [2, 2], [-1], [True], [2**62, 4], [[]], {"a": 1}, {b"a": 1}, "|O", "|b1", "<U1", "<f4", ">i8", "|V8", "infer",
    )  # fmt: skip

    def __init__(self, frames: list[bytes], seed: int) -> None:
        self._random = random.Random(seed)
        self._frames = frames
        self._values = [msgpack.unpackb(frame) for frame in frames]

    def __call__(self, number: int) -> bytes:
        which = number % len(self._frames)
        return self._edit(which) if number % 5 < 2 else self._scramble(which)

    def _scramble(self, which: int) -> bytes:
        pick, frame = self._random.randrange, bytearray(self._frames[which])
        for _ in range(self._random.choice((1, 1, 1, 2, 4))):
            at, kind = pick(len(frame) + 1), pick(16)
            if kind < 5:
                frame[at : at + 1] = bytes((pick(256),))
            elif kind < 9:
                frame[at : at + 1] = bytes((HEADERS[pick(len(HEADERS))],))
            elif kind < 11:
                del frame[at : at + self._random.choice((1, 1, 2, 5, 40))]
            elif kind < 13:
                frame[at:at] = self._random.randbytes(self._random.choice((1, 1, 2, 5)))
            elif kind < 15:
                other = self._random.choice(self._frames)
                start = pick(len(other))
                frame[at : at + 12] = other[start : start + 12]
            else:
                del frame[at:]
        return bytes(frame)

    def _edit(self, which: int) -> bytes:
        """Replace, drop or add one thing somewhere inside the message, and write it again."""
        spot = self._values[which]
        while True:
            key = self._random.choice(list(spot) if isinstance(spot, dict) else range(len(spot)))
            if not isinstance(spot[key], (dict, list)) or not spot[key] or self._random.random() < 0.25:
                break
            spot = spot[key]
        before, kind = spot[key], self._random.randrange(8)
        if kind == 0 and isinstance(spot, dict):
            del spot[key]
        elif kind == 1 and isinstance(spot, dict):
            spot[self._random.choice(("extra", b"extra"))] = self._random.choice(self.junk)
        elif kind == 2 and isinstance(before, bytes):
            spot[key] = before[: self._random.randrange(len(before) + 1)]
        elif kind == 3 and isinstance(before, bytes):
            spot[key] = self._random.randbytes(len(before))
        else:
            spot[key] = self._random.choice(self.junk)
        frame: bytes = msgpack.packb(self._values[which])
        if isinstance(spot, dict):
            spot.pop("extra", None), spot.pop(b"extra", None)
        spot[key] = before
        return frame


@pytest.mark.slow
def test_200000_seeded_mutations_of_real_frames_never_crash(frames: list[bytes]) -> None:
    mutate = Mutator(frames, seed=2)
    ends = Counter(swallow(mutate(number)) for number in range(200_000))
    assert ends["accepted"] > 10_000
    assert len(ends) > 20  # most kinds of refusal were met


def beyond(frame: bytes) -> int:
    """Peak memory that decoding `frame` and reading its message take, besides the frame."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    swallow(frame)
    return tracemalloc.get_traced_memory()[1] - before


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_memory_stays_bounded_on_2000_mutations(frames: list[bytes]) -> None:
    mutate = Mutator(frames, seed=3)
    for number in range(2_000):
        frame = mutate(number)
        assert beyond(frame) < len(frame) + 16 * MIB


def packed(value: Any) -> bytes:
    return bytes(msgpack.packb(value))


SMALL = decoder.SMALL_FRAME
HOSTILE = {
    "lists that claim 65,535 elements": b"\xdd\x00\x00\xff\xff" * 16,
    "lists that claim 4 billion elements": b"\xdd\xff\xff\xff\xff" * 16,
    "a thousand lists that claim 512": b"\xdc\x02\x00" * 1_020,
    "a thousand lists that claim 512, and fill one": b"\xdc\x02\x00" * 1_020 + b"\xcb" * 4_000,
    "as many lists as the small path takes": b"\xdc\x02\x00" * (SMALL // 3),
    "maps that claim 65,535 entries": (b"\xde\xff\xff\xa1k") * 16,
    "maps that claim 4 billion entries": (b"\xdf\xff\xff\xff\xff\xa1k") * 16,
    "empty maps, small": packed([{}] * 512),
    "empty maps": packed([{}] * 65_536),
    "too many empty maps": packed([{}] * 65_537),
    "millions of empty lists": b"\xdd\x00\x40\x00\x00" + b"\x90" * (4 * MIB),
    "maps of one, small": packed([[{"": {"": {"": {}}}}] * 500] * 6),
    "maps of one": packed([{f"k{k}": {"v": {}}} for k in range(10_000)]),
    "chains of maps of one": packed([{"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": 1}}}}}}}}] * 3_600),
    "short strings": packed([f"{k:05}" for k in range(65_536)]),
    "distinct keys": packed({f"{k:05}": "€" for k in range(32_768)}),
    "one character of four bytes": packed("x" * (24 * MIB) + "😀"),
    "wide text up to the limit": packed(["😀" * (128 * 2**10 - 1)]),
    "much ASCII": packed({"message_type": "metadata", "data": {"pad": "x" * (20 * MIB)}}),
    "much binary": packed({"message_type": "metadata", "data": {"pad": b"x" * (20 * MIB)}}),
    "binary in a list": packed([b"x" * (20 * MIB)]),
    "text padded to the longest": packed(
        {
            "message_type": "infer",
            "env_indices": {
                b"__ndarray__": True, b"data": np.arange(16_000).tobytes(), b"dtype": "<i8", b"shape": [16_000],
            },
            "step_ids": {
                b"__ndarray__": True, b"data": np.arange(16_000).tobytes(), b"dtype": "<i8", b"shape": [16_000],
            },
            "data": {"images": {}, "states": {}, "text": ["x" * 100_000] + [""] * 15_999},
        }
    ),
    "an array of nothing": packed({b"__ndarray__": True, b"data": b"", b"dtype": "<f8", b"shape": [0, 2**59]}),
    "an array that claims much": packed({b"__ndarray__": True, b"data": b"", b"dtype": "<f8", b"shape": [2**40]}),
    "wide array characters": packed({b"__ndarray__": True, b"data": b"\xff" * 4000, b"dtype": "<U1000", b"shape": [1]}),
    "many arrays": packed(
        [{b"__ndarray__": True, b"data": b"", b"dtype": "|u1", b"shape": [0]} for _ in range(6_553)]
    ),
    "many scalars": packed([{b"__npgeneric__": True, b"data": 1.5, b"dtype": "<f8"} for _ in range(9_362)]),
    "a large array": encode({"message_type": "metadata", "data": {"x": np.zeros(5 * MIB)}}),
    "a large text array": encode({"message_type": "metadata", "data": {"x": np.full(1000, "😀" * 5_000)}}),
    "a map that turns out to be no array": packed(
        {b"__ndarray__": True, b"data": b"x" * (20 * MIB), b"dtype": "<f8", b"shape": "no"}
    ),
}  # fmt: skip


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_frames_take_no_more_than_a_frame_and_16_mib(name: str) -> None:
    assert beyond(HOSTILE[name]) < len(HOSTILE[name]) + 16 * MIB


@given(st.binary(max_size=200))
@settings(max_examples=500)
def test_arbitrary_bytes_decode_or_raise_the_one_error(frame: bytes) -> None:
    swallow(frame)


TOKENS = st.sampled_from(
    [
        b"\x80", b"\x81", b"\x82", b"\x84", b"\x90", b"\x91", b"\x92", b"\xa1k", b"\xa0", b"\xc4\x01k", b"\xc0",
        b"\xc2", b"\xc3",
        b"\xd6\xff\0\0\0\1", b"\x05", b"\xff", b"\xca\0\0\0\0", b"\xd1\xff\xff", b"\xdc\0\2",
        b"\xdd\0\0\0\1", b"\xde\0\1",
        b"\xdf\0\0\0\1", b"\xd4\1\1", b"\xc7\0\5", b"\xc1", b"\xa2\xc3\xa4", b"\xa1\xff", b"\xc4\x0b__ndarray__\xc3",
        b"\xc4\x0b__ndarray__\xc2", b"\xc4\x0d__npgeneric__\xc3", b"\xc4\x04data", b"\xc4\x05dtype", b"\xc4\x05shape",
        b"\xa3|u1", b"\xa3<f4", b"\xa3|b1", b"\xa3<U1", b"\xa2|O", b"\xc4\x00", b"\xc4\x01\x01", b"\xc4\x04\0\0\0\0",
        b"\x84\xc4\x0b__ndarray__\xc3\xc4\x04data\xc4\x04\0\0\0\0", b"\xc4\x05dtype\xa3<f4", b"\xc4\x05shape\x91\x01",
        encode(np.ones(1, np.uint8)), encode(np.array(["x"])), encode(np.float32(1)),
        b"\x91" * 13, b"\xdc\2\1" + b"\0" * 513,
    ]
)  # fmt: skip


@given(st.lists(TOKENS, max_size=24).map(b"".join))
@settings(max_examples=2_000)
def test_the_c_unpacker_and_the_careful_reader_agree(frame: bytes) -> None:
    fast, careful = outcome(lambda: decode(frame)), outcome(lambda: Reader(frame).read())
    assert same(fast, careful)


def test_they_agree_on_mutations(frames: list[bytes]) -> None:
    mutate = Mutator(frames, seed=4)
    for frame in map(mutate, range(4_000)):
        assert same(outcome(lambda: decode(frame)), outcome(lambda: Reader(frame).read()))  # noqa: B023


def test_the_short_way_to_an_array_is_the_long_one(frames: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    mutations = list(map(Mutator(frames, seed=5), range(8_000)))
    short = [outcome(Reader(frame).read) for frame in mutations]
    monkeypatch.setattr(Reader, "_usual_array", lambda *_: None)
    for frame, value in zip(mutations, short, strict=True):
        assert same(value, outcome(Reader(frame).read))


@pytest.mark.parametrize("rows", [3, 20_000])
def test_lesson_15_arrays_alias_no_buffer_that_changes(rows: int) -> None:
    original = np.arange(rows, dtype=np.float64)
    frame = encode({"x": original})
    for kind in (bytes, bytearray, memoryview, lambda raw: memoryview(bytearray(raw)).toreadonly()):
        buffer = kind(frame)
        array = decode(buffer)["x"]
        if not isinstance(buffer, bytes) and not memoryview(buffer).readonly:
            buffer[:] = bytes(len(frame))
        assert np.array_equal(array, original)
        assert not array.flags.writeable


def test_a_large_frame_is_not_copied() -> None:
    frame = encode({"image": np.zeros((2, 224, 224, 3), np.uint8)})
    assert decode(frame)["image"].base is frame


ARRAY, SCALAR = encode(np.zeros(1, np.uint8)), encode(np.uint8(1))


@pytest.mark.parametrize(
    ("levels", "leaf"),
    [(16, b"\0"), (14, ARRAY), (15, SCALAR)],
)
@pytest.mark.parametrize("level", [b"\x91", b"\x81\xa1k", b"\x81\xc4\x01k"])
@pytest.mark.parametrize("padding", [0, SMALL])
def test_depth_ends_at_16_on_both_ways(levels: int, leaf: bytes, level: bytes, padding: int) -> None:
    start, end = b"\x92", msgpack.packb(b"x" * padding)  # the padding makes the frame a large one
    assert decode(start + level * (levels - 1) + leaf + end)
    with pytest.raises(RemoteProtocolError, match="nested deeper than 16"):
        decode(start + level * levels + leaf + end)


@pytest.mark.parametrize(
    "frame", [b"\xd6\xff\0\0\0\1", b"\xd7\xff" + bytes(8), b"\xc7\x0c\xff" + bytes(12), b"\xd4\1\1"]
)
def test_neither_timestamps_nor_ext_types(frame: bytes) -> None:
    for whole in (frame, b"\x81\xa1k" + frame, b"\x91" + frame):
        with pytest.raises(RemoteProtocolError, match="is not allowed"):
            decode(whole)


def test_long_lists_are_no_reason_to_refuse() -> None:
    assert decode(msgpack.packb([1] * 20_000)) == [1] * 20_000
    assert decode(msgpack.packb(b"top")) == b"top"
