"""Readers of typed fields, and the sentence when a value is something else."""

import time
from typing import Any

import numpy as np
import pytest
from plugrl_protocol.codec import fields
from plugrl_protocol.errors import LocalProtocolError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros((3, 1), np.float16), "float[3,1]"), (np.zeros(()), "float[]"), (np.zeros(2, np.int8), "int[2]"),
        (np.zeros(2, np.uint32), "uint[2]"), (np.zeros(0, bool), "bool[0]"), (np.array(["a"]), "str[1]"),
        (np.zeros(1, complex), "complex128[1]"), ({}, "map"), ([], "list"), ((), "list"), (b"", "bin"), (None, "nil"),
        ("", "str"), (1, "int"), (True, "bool"), (1.5, "float"), (np.float32(1), "float32"),
    ],
)  # fmt: skip
def test_describe(value: Any, text: str) -> None:
    assert fields.describe(value) == text


def test_describe_exactly() -> None:
    assert fields.describe(np.zeros((2, 3), np.float32), exact=True) == "float32[2,3]"


def refused(text: str) -> Any:
    return pytest.raises(LocalProtocolError, match=text)


def test_maps() -> None:
    assert fields.read_map({"a": 1}, "p", "c") == {"a": 1}
    with refused("p: expected map, got list"):
        fields.read_map([], "p", "c")
    with refused("p: expected str keys, got bin b'a'"):
        fields.read_map({b"a": 1}, "p", "c")
    assert fields.read_key({"a": None}, "a", "p", "c") is None
    with refused("p: missing key 'b'"):
        fields.read_key({"a": 1}, "b", "p", "c")


def test_closed_maps() -> None:
    keys = frozenset({"a", "b"})
    assert fields.read_closed_map({"b": 1, "a": 2}, keys, "p", "c") == {"a": 2, "b": 1}
    with refused("p: missing key 'b'"):
        fields.read_closed_map({"a": 1, "c": 1}, keys, "p", "c")
    with refused("p: unknown key 'c', expected exactly a, b"):
        fields.read_closed_map({"a": 1, "b": 1, "c": 1}, keys, "p", "c")
    with refused("p: expected str keys"):
        fields.read_closed_map({"a": 1, "b": 1, b"c": 1}, keys, "p", "c")
    with refused("p: expected map, got nil"):
        fields.read_closed_map(None, keys, "p", "c")


def test_counts() -> None:
    assert fields.read_count(3, "p", "c") == 3
    number = fields.read_count(np.int32(3), "p", "c")
    assert type(number) is int
    assert fields.read_count(0, "p", "c", least=0) == 0
    for value, text in ((True, "got bool"), (1.0, "got float"), ("1", "got str"), (0, "expected int >= 1, got 0")):
        with refused(f"p: .*{text}"):
            fields.read_count(value, "p", "c")


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "<i8", ">i8", "u8"])
def test_ints_of_any_width_become_int64(dtype: str) -> None:
    ints = fields.read_ints(np.array([1, 2], dtype), 2, "p", "c")
    assert ints.dtype == np.int64
    assert ints.tolist() == [1, 2]


@pytest.mark.parametrize("value", [np.zeros(2), np.zeros(2, bool), np.zeros((2, 1), int), np.zeros(3, int), [0, 0], 0])
def test_ints_refused(value: Any) -> None:
    with refused(r"p: expected int\[2\], got"):
        fields.read_ints(value, 2, "p", "c")


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4"])
def test_floats_of_any_width_become_float32(dtype: str) -> None:
    floats = fields.read_floats(np.array([1.5, np.nan], dtype), 2, "p", "c")
    assert floats.dtype == np.float32
    assert floats.dtype.isnative
    assert floats[0] == 1.5


def test_a_float_too_large_for_float32_is_inf_without_a_warning() -> None:
    assert fields.read_floats(np.array([1e300]), 1, "p", "c").tolist() == [np.inf]


@pytest.mark.parametrize("value", [np.zeros((3, 1)), np.zeros(3, int), np.array(["1", "2", "3"]), np.zeros(()), [0.0]])
def test_floats_refused(value: Any) -> None:
    with refused(r"p: expected float\[3\], got"):
        fields.read_floats(value, 3, "p", "c")


def test_flags() -> None:
    assert fields.read_flags(np.array([True, False]), 2, "p", "c").tolist() == [True, False]
    for value in (np.zeros(2, np.int8), np.zeros(1, bool), np.zeros((2, 1), bool), [True, False], True):
        with refused(r"p: expected bool\[2\], got"):
            fields.read_flags(value, 2, "p", "c")


def test_env_indices() -> None:
    indices = fields.read_env_indices(np.array([65_535, 0, 7], np.uint16), "p")
    assert indices.dtype == np.int64
    assert indices.tolist() == [65_535, 0, 7]


@pytest.mark.parametrize(
    ("value", "detail", "clause"),
    [
        (np.array(3), r"p: expected int\[n\], got int\[\]", "4.4 indices/dtype"),
        (3, r"p: expected int\[n\], got int", "4.4 indices/dtype"),
        ([0, 1], r"p: expected int\[n\], got list", "4.4 indices/dtype"),
        (np.array([0.0]), r"p: expected int\[n\], got float\[1\]", "4.4 indices/dtype"),
        (np.array([True]), r"p: expected int\[n\], got bool\[1\]", "4.4 indices/dtype"),
        (np.zeros((1, 2), int), r"p: expected int\[n\], got int\[1,2\]", "4.4 indices/dtype"),
        (np.zeros(0, int), r"p: expected at least one env, got int\[0\]", "4.4 indices/empty"),
        (np.array([0, -1]), "p: expected 0..65535, got -1", "4.4 indices/range"),
        (np.array([0, 65_536]), "p: expected 0..65535, got 65536", "4.4 indices/range"),
        (np.array([2**64 - 1], np.uint64), "p: expected 0..65535, got 18446744073709551615", "4.4 indices/range"),
        (np.array([4, 5, 4]), "p: env 4 is named twice", "4.4 indices/unique"),
        (np.zeros(65_537, int), r"p: expected at most 65536 envs, got int\[65537\]", "4.4 indices/unique"),
    ],
)
def test_lesson_2_scalar_duplicate_and_negative_indices(value: Any, detail: str, clause: str) -> None:
    with refused(detail) as caught:
        fields.read_env_indices(value, "p")
    assert caught.value.clause == clause


def test_lesson_5_indices_that_repeat_at_the_end_take_no_long_search() -> None:
    """Quadratic, it took half a minute, in which a server serves nobody."""
    indices = np.append(np.arange(65_535), 65_534)
    began = time.process_time()
    with refused("p: env 65534 is named twice"):
        fields.read_env_indices(indices, "p")
    assert time.process_time() - began < 2
