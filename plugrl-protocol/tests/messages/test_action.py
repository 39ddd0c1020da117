"""SPEC 5.3: time-major chunks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.errors import LocalProtocolError, RemoteProtocolError
from plugrl_protocol.messages import Action

Make = Callable[..., Any]


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f4", "i8", "i1", "u1", "b1", "f2"])
@pytest.mark.parametrize("shape", [(4, 2), (1, 2, 3), (4, 2, 3, 5)])
def test_round_trip(dtype: str, shape: tuple[int, ...]) -> None:
    action = (np.arange(np.prod(shape)) % 2).reshape(shape).astype(dtype)
    got = Action.from_wire(decode(encode(Action(action, np.array([7, 1], np.int32)).to_wire())))
    assert np.array_equal(got.action, action)
    assert got.action.dtype.isnative
    assert got.action.dtype == np.dtype(dtype).newbyteorder("=")
    assert got.env_ids is not None
    assert got.env_ids.tolist() == [7, 1]


def test_env_ids_may_be_missing_and_other_keys_are_ignored(action: Make) -> None:
    wire = action([0, 1]).to_wire()
    del wire["data"]["env_ids"]
    wire["data"]["server_timing"] = {"infer_ms": 3.5}
    got = Action.from_wire(wire)
    assert got.env_ids is None
    assert "env_ids" not in got.to_wire()["data"]


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"action": np.zeros(4)}, "action.data.action: expected number[H,n,...], got float[4]"),
        ({"action": np.array([["a"]])}, "action.data.action: expected number[H,n,...], got str[1,1]"),
        ({"action": [[0.0]]}, "action.data.action: expected number[H,n,...], got list"),
        ({"action": np.zeros((0, 2, 3))}, "action.data.action: expected at least one step, got float[0,2,3]"),
        (
            {"action": np.zeros((1, 65_537, 0)), "env_ids": np.zeros(65_537, np.int8)},
            "action.data.action: expected at most 65536 envs on axis 1",
        ),
        ({"env_ids": np.array([1])}, "action.data.env_ids: expected int[2], got int[1]"),
        ({"env_ids": [0, 1]}, "action.data.env_ids: expected int[2], got list"),
    ],
)
def test_faults(changes: dict[str, Any], detail: str, action: Make) -> None:
    wire = action([0, 1]).to_wire()
    with pytest.raises(RemoteProtocolError) as caught:
        Action.from_wire(wire | {"data": wire["data"] | changes})
    assert str(caught.value) == detail
    with pytest.raises(LocalProtocolError):
        action([0, 1], **changes)


@pytest.mark.parametrize(
    ("wire", "detail"),
    [
        ({}, "action: missing key 'data'"),
        ({"data": {}}, "action.data: missing key 'action'"),
        ({"data": np.zeros((1, 2))}, "action.data: expected map, got float[1,2]"),
    ],
)
def test_missing_parts(wire: dict[str, Any], detail: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        Action.from_wire(wire)
    assert str(caught.value) == detail
