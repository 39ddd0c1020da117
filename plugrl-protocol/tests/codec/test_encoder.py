"""SPEC 3.2: byte for byte as openpi writes it, and exact for every array (lesson 15)."""

import threading
import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.codec.encoder import encode_pieces
from plugrl_protocol.errors import LocalProtocolError


def openpi(value: Any) -> Any:
    """openpi's packing hook, as published."""
    if isinstance(value, np.ndarray):
        return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    if isinstance(value, np.generic):
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    return value


SCALARS = st.sampled_from(
    [np.float32(1.5), np.float16(-2), np.float64(0.1), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True)]
)
DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)
NUMBERS = DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)))
TEXTS = st.sampled_from(["<U1", "<U5", ">U3"]).flatmap(
    lambda typestr: hnp.arrays(
        typestr,
        hnp.array_shapes(min_dims=0, max_dims=2, min_side=0),
        elements=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=int(typestr[2:])),
    )
)


@st.composite
def layouts(draw: st.DrawFn) -> np.ndarray:
    """Arrays in C order, in F order, strided, reversed, transposed, read-only."""
    array = draw(st.one_of(NUMBERS, TEXTS))
    for _ in range(draw(st.integers(0, 2))):
        if array.ndim:
            array = draw(st.sampled_from([array[::-1], array[..., ::2], array[1:], array.T, np.asfortranarray(array)]))
    if draw(st.booleans()):
        array.flags.writeable = False
    return array


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=8), st.binary(max_size=8),
    SCALARS, layouts(),
)  # fmt: skip
KEYS = st.one_of(st.text(max_size=4), st.binary(max_size=4))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)


def assert_same(back: Any, value: Any) -> None:
    """Equal in value, type, dtype (byte order too), shape and every bit."""
    if isinstance(value, np.ndarray):
        assert (back.dtype.str, back.shape) == (value.dtype.str, value.shape)
        assert back.tobytes() == value.tobytes()
    elif isinstance(value, dict):
        assert list(back) == list(value)
        for key in value:
            assert_same(back[key], value[key])
    elif isinstance(value, (list, tuple)):
        assert len(back) == len(value)
        for one, other in zip(back, value, strict=True):
            assert_same(one, other)
    elif isinstance(value, float):  # a NumPy float64 is one, and travels as one
        assert type(back) is float
        assert back == value or (back != back and value != value)
    else:
        assert type(back) is type(value)
        assert back == value


@given(VALUES)
def test_lesson_15_round_trip_is_exact(value: Any) -> None:
    assert_same(decode(encode(value)), value)


@given(VALUES)
def test_bytes_are_those_of_openpi(value: Any) -> None:
    assert encode(value) == msgpack.packb(value, default=openpi)


@pytest.mark.parametrize("rows", [1, 131_071, 131_072, 400_000])
@pytest.mark.parametrize("text", ["", "x" * 700_000])
def test_large_arrays_are_written_the_same_way(rows: int, text: str) -> None:
    large = np.arange(2 * rows, dtype=np.uint8)
    value = {
        "a": {"b": large[:rows], "list": [large[::2], 1, (large[:rows].reshape(1, -1),)], "text": text},
        "f8": np.ones((rows // 8, 2))[:, ::-1],
        "U": np.array(["ä" * (rows // 8 + 1)]),
        "scalar": np.float32(1),
    }
    frame = encode(value)
    assert frame == msgpack.packb(value, default=openpi)
    assert_same(decode(frame), value)


@pytest.mark.parametrize("typestr", ["|b1", "|i1", ">i2", "<u4", "<f2", ">f8", "<U7", ">U7"])
@pytest.mark.parametrize("arrange", [np.asarray, np.transpose, np.flip, np.asfortranarray, lambda array: array[:, ::2]])
def test_large_arrays_of_every_dtype_and_layout(typestr: str, arrange: Any) -> None:
    array = arrange((np.arange(40_000).reshape(200, 200) % 2).astype(typestr))
    for value in ({"x": array}, {"x": [array]}):
        frame = encode(value)
        assert frame == msgpack.packb(value, default=openpi)
        assert_same(decode(frame), value)


@pytest.mark.parametrize("fault", [0, 70_000, 299_999])
def test_wrong_bytes_are_found_in_large_arrays(fault: int) -> None:
    flags, text = np.zeros(300_000, np.uint8), np.zeros(300_000, np.uint32)
    flags[fault], text[fault] = 2, 0xD800
    with pytest.raises(LocalProtocolError, match=r"message\.x: data: expected bools of 0 or 1"):
        encode({"x": flags.view(bool)})
    with pytest.raises(LocalProtocolError, match=r"message\.x: data: not UTF-32"):
        encode({"x": text.view("<U1")})


IMAGES = np.zeros((2, 2, 224, 224, 3), np.uint8)


@pytest.mark.parametrize(
    "value",
    [
        {"images": {"a": IMAGES[0], "b": IMAGES[1]}, "states": {}, "text": np.array(["", ""])},
        {"images": {"a": IMAGES[0], "b": IMAGES[1]}, "text": ["a list", "goes to the judge"]},
        {"flags": np.zeros(2**20, bool)},
        {"text": np.full(2**17, "ä")},
    ],
    ids=["images", "images and a list", "bools", "text"],
)
def test_a_large_frame_takes_only_its_own_memory(value: Any) -> None:
    encode(value)
    tracemalloc.start()
    try:
        frame = encode(value)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * len(frame)


def test_arrays_of_one_name_and_different_layouts_are_told_apart() -> None:
    arrays = [np.zeros(shape, dtype) for shape in [(2,), (1, 2), (2, 1)] for dtype in ("<f4", ">f4", "<i4", "<U1")]
    for array in arrays * 2:
        for value in ({"x": array}, {"x": [array]}, {"y": array}):
            assert encode(value) == msgpack.packb(value, default=openpi)


def test_a_float64_scalar_travels_as_a_plain_float() -> None:
    assert encode(np.float64(1.5)) == b"\xcb\x3f\xf8" + bytes(6)


def test_str_and_float_subclasses_travel_as_what_they_are() -> None:
    assert decode(encode({"a": np.str_("x"), "b": (1, 2)})) == {"a": "x", "b": [1, 2]}


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ({"a": {"b": [1, {2}]}}, "message.a.b.1: a set may not travel"),
        ({"a": object()}, "message.a: a object may not travel"),
        ({"a": 1j}, "message.a: a complex may not travel"),
        ({"a": np.complex64(1)}, "message.a: dtype: expected b1, i1-i8, u1-u8, f2-f8 or U, got '<c8'"),
        ({"a": np.zeros(2, "M8[s]")}, "message.a: dtype: expected b1, i1-i8, u1-u8, f2-f8 or U, got '<M8[s]'"),
        ({"a": np.array([None])}, "message.a: dtype: expected b1, i1-i8, u1-u8, f2-f8 or U, got '|O'"),
        ({"a": np.array([b"x"])}, "message.a: dtype: expected b1, i1-i8, u1-u8, f2-f8 or U, got '|S1'"),
        ({"a": np.ma.masked_array([1.0], [True])}, "message.a: a masked array may not travel"),
        ({"a": 2**64}, "message.a: an int of more than 64 bits may not travel"),
        ({"a": -(2**63) - 1}, "message.a: an int of more than 64 bits may not travel"),
        ({"a": {1: 2}}, "message.a: map key: expected str or bytes, got 1"),
        ({"a": {1: np.zeros(2)}}, "message.a: map key: expected str or bytes, got 1"),
        ({None: np.zeros(2)}, "message: map key: expected str or bytes, got None"),
        ({"a": "\ud800"}, "message.a: str is not UTF-8: surrogates not allowed"),
        ({"a": {"\ud800": 1}}, "message.a: str is not UTF-8: surrogates not allowed"),
        ({"a": np.array(["\ud800"])}, "message.a: data: not UTF-32: code point in surrogate code point range"),
        ({"a": np.array([2], np.uint8).view(bool)}, "message.a: data: expected bools of 0 or 1"),
        ({"a": {b"__ndarray__": True}}, "message.a: map key b'__ndarray__' is the marker of an array or scalar"),
        ({"message_type": "infer", "x": {3}}, "infer.x: a set may not travel"),
        ({"a": msgpack.ExtType(5, b"x")}, "message.a: a ExtType may not travel"),
        ({"a": msgpack.Timestamp(1)}, "message.a: a Timestamp may not travel"),
        ({"a": memoryview(b"x")}, "message.a: a memoryview may not travel"),
        ([0] * 65_537, "message: expected at most 65536 elements in a message"),
        ({"a": "ä" * 262_145}, "message.a: expected at most 524288 bytes of non-ASCII str in a message"),
    ],
)  # fmt: skip
def test_what_may_not_travel_is_named_with_its_path(value: Any, detail: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        encode(value)
    assert str(caught.value).startswith(detail[:60])
    assert caught.value.clause == "3 codec/encode"
    encode({"the packer": "is clean afterwards"})


def nested(levels: int, leaf: Any) -> Any:
    for level in range(levels):
        leaf = {"k": leaf} if level % 2 else [leaf]
    return leaf


def test_limits_are_those_of_the_decoder() -> None:
    for value in (nested(16, 1), nested(14, np.zeros(2)), nested(15, np.float32(1)), [0] * 65_536):
        assert_same(decode(encode(value)), value)
    for value in (nested(17, 1), nested(15, np.zeros(2)), {"a": [0] * 65_535}, nested(600, 1)):
        with pytest.raises(LocalProtocolError):
            encode(value)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(LocalProtocolError, match="nested deeper than 16"):
        encode({"loop": loop})


def test_a_map_of_many_small_things_is_counted() -> None:
    entries = {str(key): key for key in range(32_767)}
    assert decode(encode({"a": entries})) == {"a": entries}
    with pytest.raises(LocalProtocolError, match=r"message\.a: expected at most 65536 elements"):
        encode({"a": entries | {"one": 1}})


def test_a_view_that_claims_more_than_msgpack_holds_is_refused_before_it_is_copied() -> None:
    huge = np.broadcast_to(np.zeros(1, np.uint8), 2**32)
    with pytest.raises(LocalProtocolError, match=r"message\.x: expected less than 4 GiB, got 4294967296 bytes"):
        encode({"x": huge})


def test_an_array_subclass_travels_as_an_array() -> None:
    class Labelled(np.ndarray):
        pass

    array = np.arange(6.0).reshape(2, 3).T.view(Labelled)
    assert encode({"x": array}) == encode({"x": np.asarray(array)})


def test_threads_do_not_share_a_packer() -> None:
    value = {"a": np.arange(1000.0), "b": ["x"] * 50}
    expected, wrong = encode(value), []

    def work() -> None:
        wrong.extend(1 for _ in range(200) if encode(value) != expected)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_large_arrays_are_pieces_of_their_own_and_not_copied() -> None:
    large, turned, small = np.ones((9, 10_000)), np.ones((9, 10_000)).T, np.ones(9)
    value = {"a": small, "b": {"c": large, "d": turned}, "e": "text", "f": [large]}
    pieces = encode_pieces(value)
    assert b"".join(pieces) == encode(value) == msgpack.packb(value, default=openpi)
    arrays = [piece for piece in pieces if isinstance(piece, np.ndarray)]
    assert [np.shares_memory(array, of) for array, of in zip(arrays, (large, turned, large), strict=True)] == [
        True,
        False,  # not in C order
        True,
    ]
    assert len(encode_pieces({"a": small, "e": "text"})) == 1
