"""SPEC 3.2 and 3.3: what an array or scalar on the wire may be."""

from typing import Any

import numpy as np
import pytest
from plugrl_protocol.codec.arrays import (
    NotAllowedError,
    allowed_dtype,
    allowed_typestr,
    build_array,
    build_scalar,
    check_in_pieces,
    element,
    flat_bytes,
    view,
)

ALLOWED = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "U1", "U7", "U1000000"]
REFUSED = [
    "|O", "<O8", "|V8", "<c8", "<c16", "<M8[ns]", "<m8", "|S5", "<f16", "<i16", "<i3", "|f8", "|i4", "=f8", "f8", "<f",
    "<U", "<U0", "|U4", "<U-1", "<U 4", "<U99999999999", "float64", "<f8,<f8", "", "<", "<f8 ", "<U٣", "<b2", "(2)<f8",
]  # fmt: skip


def wire(**changes: Any) -> dict[Any, Any]:
    value = {b"__ndarray__": True, b"data": b"\0" * 12, b"dtype": "<f4", b"shape": [3]}
    return value | {key.encode(): item for key, item in changes.items()}


@pytest.mark.parametrize("kind", ALLOWED)
@pytest.mark.parametrize("order", ["<", ">"])
def test_the_allow_list(kind: str, order: str) -> None:
    dtype = allowed_dtype(order + kind)
    assert dtype == np.dtype(order + kind)
    assert allowed_dtype(allowed_typestr(dtype)) == dtype


@pytest.mark.parametrize("typestr", REFUSED)
def test_everything_else_is_refused_before_numpy_sees_it(typestr: str) -> None:
    with pytest.raises(NotAllowedError, match="dtype: expected b1, i1-i8, u1-u8, f2-f8 or U"):
        allowed_dtype(typestr)


@pytest.mark.parametrize("dtype", ["O", "V3", "c8", "M8[s]", "m8[s]", "S4", np.longdouble, [("a", "f4")]])
def test_unsupported_dtypes_are_refused_on_encode_too(dtype: Any) -> None:
    with pytest.raises(NotAllowedError):
        allowed_typestr(np.dtype(dtype))


@pytest.mark.parametrize("typestr", [None, b"<f4", 4, ["<f4"], {}])
def test_a_typestr_is_a_str(typestr: object) -> None:
    with pytest.raises(NotAllowedError, match="dtype: expected str, got"):
        allowed_dtype(typestr)


def test_single_bytes_have_no_order() -> None:
    assert allowed_dtype("|u1") == allowed_dtype("<u1") == allowed_dtype(">u1") == np.uint8


def test_an_array_is_a_read_only_view_of_its_data() -> None:
    data = np.arange(3, dtype=np.float32).tobytes()
    array = build_array(wire(data=data))
    assert array.tolist() == [0, 1, 2]
    assert array.base is data
    assert not array.flags.writeable


def test_a_view_starts_anywhere() -> None:
    buffer = b"x" + np.arange(6, dtype=np.float64).tobytes() + b"y"
    array = view(buffer, 1, 48, "<f8", [2, 3])
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert array.base is buffer


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"__ndarray__": 1}, "__ndarray__"),
        ({"__ndarray__": False}, "__ndarray__"),
        ({"__ndarray__": None}, "__ndarray__"),
        ({"extra": 1}, "expected exactly"),
        ({"data": None}, "data: expected bin, got nil"),
        ({"data": "\0" * 12}, "data: expected bin, got str"),
        ({"data": [0] * 12}, "data: expected bin, got list"),
        ({"data": b"\0" * 11}, r"expected 12 bytes for <f4 \[3\], got 11"),
        ({"data": b"\0" * 13}, r"expected 12 bytes for <f4 \[3\], got 13"),
        ({"data": b""}, r"expected 12 bytes for <f4 \[3\], got 0"),
        ({"dtype": "|O"}, "dtype"),
        ({"shape": None}, "shape: expected a list"),
        ({"shape": 3}, "shape: expected a list"),
        ({"shape": {}}, "shape: expected a list"),
        ({"shape": [-1]}, "shape: expected ints >= 0"),
        ({"shape": [3.0]}, "shape: expected ints >= 0"),
        ({"shape": [True, 3]}, "shape: expected ints >= 0"),
        ({"shape": ["3"]}, "shape: expected ints >= 0"),
        ({"shape": [None]}, "shape: expected ints >= 0"),
        ({"shape": [2**64 - 1] * 32}, "expected [0-9]+ bytes"),
        ({"shape": [2**62, 4]}, "expected [0-9]+ bytes"),  # 2**64 elements of 4 bytes: 0 in 64 bits
        ({"shape": [1] * 33}, "at most 32"),
        ({"data": b"", "shape": [0, 2**63]}, "too large"),
        ({"data": b"", "shape": [0, 2**62]}, "too large"),
        ({"data": b"", "shape": [2**31, 0, 2**40]}, "too large"),
        ({"data": b"\0\1\2", "dtype": "|b1"}, "bools of 0 or 1"),
        ({"data": b"\x00\x00\x11\x00" * 3, "dtype": "<U1"}, "UTF-32"),  # U+110000
        ({"data": b"\x00\xd8\x00\x00" * 3, "dtype": "<U1"}, "UTF-32"),  # a surrogate
        ({"data": b"\x00\x00\xdf\xff" * 3, "dtype": ">U1"}, "UTF-32"),
    ],
)
def test_whatever_is_not_exact_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(NotAllowedError, match=text):
        build_array(wire(**change))


@pytest.mark.parametrize("typestr", ["|b1", "<U3", ">U3"])
@pytest.mark.parametrize("fault", [0, 65_535, 65_536, 150_000])
def test_bytes_that_numpy_takes_on_trust_are_looked_at_wherever_they_are(typestr: str, fault: int) -> None:
    size = 12 * 16_000
    good, bad = bytes(size), bytearray(size)
    bad[fault // 4 * 4 : fault // 4 * 4 + 4] = b"\xff" * 4
    length = size // element(typestr).size
    for start in (0, 1):
        assert len(view(b"x" * start + good, start, size, typestr, [length])) == length
        with pytest.raises(NotAllowedError, match="data: "):
            view(b"x" * start + bytes(bad), start, size, typestr, [length])


def test_check_in_pieces_looks_at_every_byte_once() -> None:
    seen: list[bytes] = []
    data = bytes(range(256)) * 1_000
    check_in_pieces(seen.append, data)
    assert b"".join(seen) == data
    assert max(map(len, seen)) < len(data)


@pytest.mark.parametrize("typestr", ["|u1", "<f8", ">i2", "<U3", ">U3"])
def test_flat_bytes_are_those_in_c_order(typestr: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(typestr)
    for arranged in (array, array.T, array[:, ::-1], array[:0], array[0, 0, 0:1].reshape(())):
        assert flat_bytes(arranged).tobytes() == arranged.tobytes()
        assert flat_bytes(arranged).shape == (arranged.nbytes,)
    assert np.shares_memory(flat_bytes(array), array)


@pytest.mark.parametrize("key", [b"data", b"dtype", b"shape"])
def test_no_key_may_be_missing(key: bytes) -> None:
    value = wire()
    del value[key]
    with pytest.raises(NotAllowedError, match=f"{key.decode()}: missing"):
        build_array(value)


@pytest.mark.parametrize("shape", [[0], [0, 5], [3, 0, 2]])
def test_empty_arrays(shape: list[int]) -> None:
    assert build_array(wire(data=b"", shape=shape)).shape == tuple(shape)


@pytest.mark.parametrize(
    ("data", "dtype", "expected"),
    [
        (True, "|b1", np.bool_(True)),
        (-5, "<i8", np.int64(-5)),
        (255, "|u1", np.uint8(255)),
        (1.5, "<f4", np.float32(1.5)),
        (2, "<f2", np.float16(2)),
        (1e10, "<f2", np.float16(np.inf)),
        (7, ">i4", np.int32(7)),
    ],
)
def test_scalars(data: Any, dtype: str, expected: np.generic) -> None:
    scalar = build_scalar({b"__npgeneric__": True, b"data": data, b"dtype": dtype})
    assert type(scalar) is type(expected)
    assert scalar == expected


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1, "|b1"), (True, "<i4"), (True, "<f4"), (1.0, "<i4"), (None, "<f4"), ("1", "<i4"), (b"1", "<i4"),
        (256, "|u1"), (-1, "<u8"), (2**63, "<i8"), ("a", "<U1"), (1, "|O"), ([1], "<i4"),
    ],
)  # fmt: skip
def test_a_scalar_must_fit_its_dtype(data: Any, dtype: str) -> None:
    with pytest.raises(NotAllowedError):
        build_scalar({b"__npgeneric__": True, b"data": data, b"dtype": dtype})


@pytest.mark.parametrize(
    "value",
    [
        {b"__npgeneric__": True, b"data": 1},
        {b"__npgeneric__": True, b"dtype": "<i4"},
        {b"__npgeneric__": 1, b"data": 1, b"dtype": "<i4"},
        {b"__npgeneric__": True, b"data": 1, b"dtype": "<i4", b"x": 1},
        {b"__npgeneric__": True, b"data": 1, b"shape": []},
    ],
)
def test_a_scalar_has_exactly_its_keys(value: dict[Any, Any]) -> None:
    with pytest.raises(NotAllowedError, match="expected exactly __npgeneric__"):
        build_scalar(value)
