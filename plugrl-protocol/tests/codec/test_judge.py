"""What passes the judge, every peer can decode; what does not, is named with its path."""

from typing import Any

import numpy as np
import pytest
from plugrl_protocol.codec import encode
from plugrl_protocol.codec.judge import check_encodable
from plugrl_protocol.errors import LocalProtocolError


@pytest.mark.parametrize(
    "value",
    [
        None, True, 1, -(2**63), 2**64 - 1, 1.5, "ä", b"x", bytearray(b"x"), [], (), {}, {b"k": 1}, {"k": (1, [2])},
        np.zeros((2, 0)), np.array("x"), np.float64(1), np.float32(1), np.bool_(True), np.str_("x"), np.bytes_(b"x"),
        np.zeros([1] * 32),
    ],
)  # fmt: skip
def test_what_may_travel(value: Any) -> None:
    check_encodable(value)


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ({"a": [0, ({"b": set()},)]}, "message.a.1.0.b: a set may not travel"),
        ({"message_type": "infer", "data": {"x": 1j}}, "infer.data.x: a complex may not travel"),
        ({"message_type": 3, "x": 1j}, "message.x: a complex may not travel"),
        ({b"\xff": 1j}, "message.\\xff: a complex may not travel"),
        (np.longdouble(1), "message: dtype: expected b1"),
        (range(3), "message: a range may not travel"),
    ],
)
def test_the_path_leads_to_the_fault(value: Any, detail: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        check_encodable(value)
    assert str(caught.value).startswith(detail)


def test_an_array_counts_as_its_map_and_its_shape() -> None:
    arrays = [np.zeros((1, 1))] * 5957  # each itself, 8 and 2 elements: 65,527
    check_encodable([*arrays, *[0] * 9])
    with pytest.raises(LocalProtocolError, match="at most 65536 elements"):
        check_encodable([*arrays, *[0] * 10])


@pytest.mark.skipif(int(np.__version__.split(".")[0]) < 2, reason="NumPy 1 has no arrays of 33 dimensions")
def test_more_dimensions_than_every_numpy_has() -> None:
    for array in (np.zeros([1] * 33), np.zeros([2] + [1] * 32)[::-1]):
        with pytest.raises(LocalProtocolError, match="at most 32 dimensions, got 33"):
            check_encodable(array)
        with pytest.raises(LocalProtocolError, match="at most 32 dimensions, got 33"):
            encode({"x": array})
