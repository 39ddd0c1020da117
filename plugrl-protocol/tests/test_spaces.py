"""SPEC 10.2: the four kinds of action space, and the declaration."""

from typing import Any

import numpy as np
import pytest
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.errors import LocalProtocolError, RemoteProtocolError
from plugrl_protocol.spaces import (
    ActionSpace,
    BoxSpace,
    Declaration,
    DiscreteSpace,
    MultiBinarySpace,
    MultiDiscreteSpace,
    action_space_from_wire,
)

BOX = BoxSpace((2,), np.dtype(np.float32), np.array([-1, -np.inf]), np.array([1, np.inf]))
SPACES: list[tuple[ActionSpace, str, tuple[int, ...], str]] = [
    (BOX, "Box(2,)", (2,), "float32"),
    (BoxSpace((), np.dtype(np.int16), np.array(-3), np.array(3)), "Box()", (), "int16"),
    (DiscreteSpace(2), "Discrete(2)", (), "int64"),
    (DiscreteSpace(4, start=-1), "Discrete(4, start=-1)", (), "int64"),
    (MultiDiscreteSpace(np.array([3, 2], np.int32)), "MultiDiscrete([3, 2])", (2,), "int64"),
    (MultiBinarySpace(5), "MultiBinary(5)", (5,), "int8"),
]


@pytest.mark.parametrize(("space", "text", "shape", "dtype"), SPACES)
def test_spaces_travel_unchanged_and_read_well(
    space: ActionSpace, text: str, shape: tuple[int, ...], dtype: str
) -> None:
    back = action_space_from_wire(decode(encode(space.to_wire())), "infer.spaces.action")
    assert back == space
    assert hash(back) == hash(space)
    assert (str(back), back.shape, back.dtype) == (text, shape, np.dtype(dtype))


def test_spaces_differ_by_value() -> None:
    other = BoxSpace((2,), np.dtype(np.float32), np.array([-1, -2]), np.array([1, 2]))
    assert other != BOX
    assert MultiDiscreteSpace(np.array([3, 2])) != MultiDiscreteSpace(np.array([3, 3]))
    assert DiscreteSpace(2) != DiscreteSpace(2, start=1)
    assert DiscreteSpace(2) != MultiBinarySpace(2)


def test_bounds_take_the_dtype_of_the_space() -> None:
    space = BoxSpace((1,), np.dtype(">f4"), np.array([-1.0]), np.array([1e300]))
    assert space.dtype == np.dtype("float32")
    assert space.low.dtype == space.high.dtype == np.float32
    assert np.isinf(space.high[0])


def wire_box(**changes: Any) -> dict[str, Any]:
    value = {"kind": "box", "shape": [2], "dtype": "<f4", "low": -np.ones(2), "high": np.ones(2)}
    return value | changes


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (None, "p: expected map, got nil"),
        ({}, "p: missing key 'kind'"),
        ({"kind": "dict"}, "p.kind: expected box, discrete, multi_discrete, multi_binary, got 'dict'"),
        ({"kind": []}, "p.kind: expected box, discrete, multi_discrete, multi_binary, got []"),
        ({"kind": "box"}, "p: missing key 'shape'"),
        (wire_box(shape=2), "p.shape: expected list of int, got int"),
        (wire_box(shape=[-1]), "p.shape: expected int >= 0, got -1"),
        (wire_box(shape=[True]), "p.shape: expected int, got bool"),
        (wire_box(dtype="|O"), "p.dtype: expected b1, i1-i8, u1-u8, f2-f8 or U, got '|O'"),
        (wire_box(dtype="<U4"), "p.dtype: expected int, uint or float of up to 8 bytes, got <U4"),
        (wire_box(low=[-1, -1]), "p.low: expected float[2], got list"),
        (wire_box(high=np.ones(3)), "p.high: expected float[2], got float[3]"),
        (wire_box(low=np.array([np.nan, 0])), "p.low: expected values of float32"),
        (wire_box(low=np.ones(2) * 2), "p.low: expected low <= high everywhere"),
        (
            wire_box(low=np.array([0, np.inf]), high=np.full(2, np.inf)),
            "p.low: expected room for a finite number between low and high",
        ),
        (
            wire_box(low=np.full(2, -np.inf), high=np.array([0, -1e300])),
            "p.low: expected room for a finite number between low and high",
        ),
        (
            wire_box(dtype="|u1", low=np.zeros(2, int), high=np.array([1, 256])),
            "p.high: expected values of uint8",
        ),
        (wire_box(dtype="|u1"), "p.low: expected int[2], got float[2]"),
        ({"kind": "discrete"}, "p: missing key 'n'"),
        ({"kind": "discrete", "n": 0}, "p.n: expected int >= 1, got 0"),
        ({"kind": "discrete", "n": True}, "p.n: expected int, got bool"),
        ({"kind": "discrete", "n": 2, "start": "0"}, "p.start: expected int, got str"),
        ({"kind": "multi_discrete", "nvec": [2]}, "p.nvec: expected int[k], got list"),
        ({"kind": "multi_discrete", "nvec": np.zeros(0, int)}, "p.nvec: expected int[k], got int[0]"),
        ({"kind": "multi_discrete", "nvec": np.array([2, 0])}, "p.nvec: expected ints >= 1 of 64 bits, got 0"),
        (
            {"kind": "multi_discrete", "nvec": np.array([2, 2**63], np.uint64)},
            "p.nvec: expected ints >= 1 of 64 bits, got 9223372036854775808",
        ),
        ({"kind": "discrete", "n": 2**63 + 1}, f"p.n: expected actions of 64 bits, got Discrete({2**63 + 1})"),
        (
            {"kind": "discrete", "n": 2**63 - 1, "start": 2},
            f"p.n: expected actions of 64 bits, got Discrete({2**63 - 1}, start=2)",
        ),
        ({"kind": "multi_binary", "n": 1.0}, "p.n: expected int, got float"),
    ],
)
def test_faults_are_named_with_their_path(value: Any, detail: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        action_space_from_wire(value, "p")
    assert str(caught.value) == detail
    assert caught.value.clause == "10.2 spaces/action"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (wire_box(shape=[2**20 + 1], low=np.zeros(2**20 + 1, np.int8), high=np.zeros(2**20 + 1, np.int8)), "p.shape"),
        ({"kind": "multi_discrete", "nvec": np.ones(2**20 + 1, np.uint8)}, "p.nvec"),
        ({"kind": "multi_binary", "n": 2**20 + 1}, "p.n"),
    ],
)
def test_lesson_2_an_action_of_too_many_numbers_is_refused_before_it_takes_memory(value: Any, path: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        action_space_from_wire(value, "p")
    assert str(caught.value) == f"{path}: expected at most 1048576 numbers in an action, got 1048577"


def test_a_local_space_blames_ourselves() -> None:
    with pytest.raises(LocalProtocolError, match=r"box\.low: expected float\[2\], got float\[3\]"):
        BoxSpace((2,), np.dtype(np.float32), np.zeros(3), np.zeros(2))


def test_a_declaration_travels_unchanged() -> None:
    full = Declaration(BOX, env="Hopper-v5", num_envs=8, max_episode_steps=1000, client=0)
    assert Declaration.from_wire(decode(encode(full.to_wire())), "infer.spaces") == full
    short = Declaration(DiscreteSpace(2))
    assert short.to_wire() == {"action": {"kind": "discrete", "n": 2, "start": 0}}
    assert Declaration.from_wire(short.to_wire() | {"unknown": 1}, "infer.spaces") == short


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"action": 3}, "infer.spaces.action: expected map, got int"),
        ({"env": 3}, "infer.spaces.env: expected str, got int"),
        ({"num_envs": 0}, "infer.spaces.num_envs: expected int >= 1, got 0"),
        ({"max_episode_steps": 1.5}, "infer.spaces.max_episode_steps: expected int, got float"),
        ({"client": "a"}, "infer.spaces.client: expected int, got str"),
    ],
)
def test_a_wrong_declaration_is_named_with_its_path(change: dict[str, Any], detail: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        Declaration.from_wire(Declaration(DiscreteSpace(2)).to_wire() | change, "infer.spaces")
    assert str(caught.value) == detail


def test_a_declaration_without_an_action_space() -> None:
    with pytest.raises(RemoteProtocolError, match=r"infer\.spaces: missing key 'action'"):
        Declaration.from_wire({}, "infer.spaces")
    with pytest.raises(LocalProtocolError, match=r"spaces\.action: expected an action space, got map"):
        Declaration({"kind": "discrete"})  # type: ignore[arg-type]
