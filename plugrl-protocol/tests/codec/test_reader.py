"""The careful reader: every limit, every refusal, and its path (SPEC 3)."""

import struct
from typing import Any

import msgpack
import numpy as np
import pytest
from plugrl_protocol.codec import encode, reader
from plugrl_protocol.codec.limits import MAX_WIDE_TEXT
from plugrl_protocol.codec.reader import Reader
from plugrl_protocol.errors import RemoteProtocolError


def read(frame: bytes) -> Any:
    return Reader(frame).read()


def refused(frame: bytes) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        read(frame)
    return caught.value


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, 127, 128, 255, 256, 65_535, 65_536, 2**32, 2**64 - 1, -1, -32, -33, -128, -129, -32_769,
        -(2**31) - 1, -(2**63), 0.5, float("inf"), "", "a" * 31, "a" * 32, "ä" * 200, "x" * 70_000, b"", b"x" * 300,
        b"x" * 70_000, [], [0] * 16, [None] * 65_536, {}, {str(k): k for k in range(20)},
        {str(k): k for k in range(32_768)}, {b"bin": [b"in a list", {"deep": b"er"}]}, {"k" * 40: 1, b"k" * 300: 2},
    ],
)  # fmt: skip
def test_every_msgpack_type_is_read_as_msgpack_reads_it(value: Any) -> None:
    back = read(msgpack.packb(value))
    assert back == value
    assert type(back) is type(value)


def test_single_floats() -> None:
    assert read(b"\xca\x3f\xc0\x00\x00") == 1.5


def test_arrays_in_any_key_order_and_width() -> None:
    keys = {b"__ndarray__": True, b"data": b"\x01\x02", b"dtype": "|u1", b"shape": [2]}
    for order in (list(keys), list(keys)[::-1], [b"data", b"shape", b"__ndarray__", b"dtype"]):
        assert read(msgpack.packb({key: keys[key] for key in order})).tolist() == [1, 2]
    long_keys = b"\xdf\0\0\0\4" + b"".join(msgpack.packb(key) + msgpack.packb(item) for key, item in keys.items())
    assert read(long_keys).tolist() == [1, 2]


def test_an_almost_usual_array_is_judged_like_any_map() -> None:
    usual = encode(np.zeros(2, np.uint8))
    assert usual.startswith(b"\x84\xc4\x0b__ndarray__\xc3\xc4\x04data")
    assert "dtype: missing" in str(refused(usual.replace(b"dtype", b"dtypo")))
    assert "shape: missing" in str(refused(usual.replace(b"shape", b"shapo")))
    assert "data: expected bin, got nil" in str(refused(usual.replace(b"\xc4\x02\0\0", b"\xc0")))
    assert "ends inside" in str(refused(usual[:30]))
    twice = usual.replace(b"\xc4\x05shape", b"\xc4\x05dtype")
    assert "shape: missing" in str(refused(twice))
    assert "str is not UTF-8" in str(refused(usual.replace(b"\xa3|u1", b"\xaa|u1")))
    assert "expected b1, i1-i8" in str(refused(usual.replace(b"\xa3|u1", b"\xa3|u9")))


@pytest.mark.parametrize("shape", [(), (0,), (127,), (128,), (255,), (256,), (65_535,), (65_536,), (1,) * 6, (1,) * 7])
@pytest.mark.parametrize("typestr", ["|u1", ">f8", "<U1", "<U12345"])
def test_arrays_of_every_shape_and_width(shape: tuple[int, ...], typestr: str) -> None:
    array = np.zeros(shape if typestr != "<U12345" else shape[:0], typestr)
    back = read(encode(["before", array, "after"]))
    assert (back[0], back[1].dtype.str, back[1].shape, back[2]) == ("before", typestr, array.shape, "after")


def test_what_is_remembered_of_an_array_is_short() -> None:
    """Lesson 2: a peer cannot fill our memory with what we keep for speed."""
    usual = encode(np.zeros(2, np.uint8))
    for long in (b"|u" + b"1" * 100_000, b"|" + b"u" * 100_000 + b"1", b"|U123456789"):
        frame = usual.replace(b"\xa3|u1", b"\xdb" + struct.pack(">I", len(long)) + long)
        kept = reader._described.cache_info().currsize
        assert "dtype: expected b1" in str(refused(frame))
        assert reader._described.cache_info().currsize == kept


def test_arrays_are_views_of_the_frame() -> None:
    frame = encode({"x": np.arange(5, dtype=np.uint8)})
    array = read(frame)["x"]
    assert array.base is frame
    assert not array.flags.writeable


def test_the_path_starts_with_the_message_type() -> None:
    inner = {"obs": {"states": {"qpos": {b"__ndarray__": True, b"data": None, b"dtype": "<f8", b"shape": [1]}}}}
    error = refused(msgpack.packb({"message_type": "feedback", "data": inner}))
    assert str(error) == "feedback.data.obs.states.qpos: data: expected bin, got nil"
    assert error.clause == "3.2 codec/array"
    assert str(refused(msgpack.packb({"data": inner}))).startswith("message.data.obs.states.qpos: ")
    assert str(refused(msgpack.packb({"message_type": "x" * 99, "data": inner}))).startswith("message.data.obs.")
    assert str(refused(msgpack.packb({"message_type": [], "data": inner}))).startswith("message.data.obs.")


@pytest.mark.parametrize(
    ("frame", "clause", "detail"),
    [
        (b"", "3 codec/msgpack", "message: the frame ends inside a value"),
        (b"\x81", "3 codec/msgpack", "message: the frame ends inside a value"),
        (b"\x81\xa1a", "3 codec/msgpack", "message.a: the frame ends inside a value"),
        (b"\x92\x00\xcd\x01", "3 codec/msgpack", "message.1: the frame ends inside a value"),
        (b"\xc6\xff\xff\xff\xff", "3 codec/msgpack", "message: the frame ends inside a value"),
        (b"\xc0\xc0\xc0", "3 codec/msgpack", "message: 2 bytes follow the value"),
        (b"\x81\xa1a\xc1", "3 codec/msgpack", "message.a: msgpack type 0xc1 is not allowed"),
        (b"\x81\xa1a\xd4\x01\x00", "3 codec/msgpack", "message.a: msgpack type 0xd4 is not allowed"),
        (b"\xd6\xff\x00\x00\x00\x01", "3 codec/msgpack", "message: msgpack type 0xd6 is not allowed"),
        (b"\xc7\x00\x05", "3 codec/msgpack", "message: msgpack type 0xc7 is not allowed"),
        (b"\x91\xa2\xff\xff", "3 codec/msgpack", "message.0: str is not UTF-8: invalid start byte"),
        (b"\xa3\xed\xa0\x80", "3 codec/msgpack", "message: str is not UTF-8"),
        (b"\x81\xa1\xff\x00", "3 codec/msgpack", "message: str is not UTF-8"),
        (b"\x81\x01\x02", "3.1 codec/keys", "message: map key: expected str or bin, got msgpack type 0x01"),
        (b"\x81\xc0\x02", "3.1 codec/keys", "message: map key: expected str or bin, got msgpack type 0xc0"),
        (b"\x81\x90\x02", "3.1 codec/keys", "message: map key: expected str or bin, got msgpack type 0x90"),
        (b"\x81\xcb" + bytes(9), "3.1 codec/keys", "message: map key: expected str or bin, got msgpack type 0xcb"),
        (b"\x91" * 17 + b"\0", "3.3 codec/limits", "message" + ".0" * 16 + ": nested deeper than 16"),
        (b"\x81\xa1k" * 17 + b"\0", "3.3 codec/limits", "message" + ".k" * 16 + ": nested deeper than 16"),
        (b"\xdd\xff\xff\xff\xff", "3.3 codec/limits", "message: expected at most 65536 elements in a message"),
        (b"\xdf\xff\xff\xff\xff", "3.3 codec/limits", "message: expected at most 65536 elements in a message"),
        (b"\xdd\x00\x01\x00\x01", "3.3 codec/limits", "message: expected at most 65536 elements in a message, got"),
        (b"\xdf\x00\x00\x80\x01", "3.3 codec/limits", "message: expected at most 65536 elements in a message, got"),
    ],
)  # fmt: skip
def test_refusals(frame: bytes, clause: str, detail: str) -> None:
    error = refused(frame)
    assert str(error).startswith(detail)
    assert error.clause == clause


def test_elements_of_all_containers_count_together() -> None:
    halves = msgpack.packb([[0] * 32_767, [0] * 32_767])
    assert len(read(halves)) == 2
    assert refused(msgpack.packb([[0] * 32_767, [0] * 32_768])).clause == "3.3 codec/limits"


def test_an_array_in_an_unusual_order_counts_once() -> None:
    keys = [b"__ndarray__", b"data", b"shape", b"dtype"]
    array = b"\x84" + b"".join(map(msgpack.packb, [keys[0], True, keys[1], b"x", keys[2], [1], keys[3], "|u1"]))
    assert read(b"\xdd" + struct.pack(">I", 65_527) + array + bytes(65_526))[0] == ord("x")
    assert "got 65537" in str(refused(b"\xdd" + struct.pack(">I", 65_528) + array + bytes(65_527)))


def test_depth_counts_an_array_as_a_map_with_a_list() -> None:
    array = encode(np.zeros(1, np.uint8))
    assert read(b"\x91" * 14 + array)
    assert refused(b"\x91" * 15 + array).clause == "3.3 codec/limits"
    scalar = encode(np.uint8(1))
    assert read(b"\x91" * 15 + scalar)
    assert refused(b"\x91" * 16 + scalar).clause == "3.3 codec/limits"


def test_ascii_of_any_length_but_not_much_wide_text() -> None:
    assert len(read(msgpack.packb("x" * 3_000_000))) == 3_000_000
    assert len(read(msgpack.packb("😀" * (MAX_WIDE_TEXT // 4)))) == MAX_WIDE_TEXT // 4
    error = refused(msgpack.packb(["x" * 2_000_000, "😀" * (MAX_WIDE_TEXT // 4), "é"]))
    assert str(error) == "message.2: expected at most 524288 bytes of non-ASCII str in a message"


def test_a_truncated_frame_is_refused_at_every_length() -> None:
    frame = encode({"a": [1, 2.5, "text", None, -200, 70_000], "b": np.ones((2, 3)), "c": np.float32(1)})
    for length in range(len(frame)):
        assert refused(frame[:length]).clause in ("3 codec/msgpack", "3.2 codec/array")


def test_a_hostile_key_cannot_flood_the_error() -> None:
    frame = b"\x81" + struct.pack(">BI", 0xDB, 1_000_000) + b"\n" * 1_000_000 + b"\xc1"
    assert len(str(refused(frame))) < 400
