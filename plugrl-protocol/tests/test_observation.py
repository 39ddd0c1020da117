"""SPEC 5.2: exactly images, states and text over one leading axis."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plugrl_protocol.errors import LocalProtocolError, RemoteProtocolError
from plugrl_protocol.observation import Observation

Make = Callable[..., Observation]
PATH = "infer.data"


def wire(**changes: Any) -> dict[str, Any]:
    value = {
        "images": {"cam": np.zeros((2, 4, 4, 3), np.uint8)},
        "states": {"qpos": np.zeros((2, 3))},
        "text": np.array(["a", "b"]),
    }
    return value | changes


def test_a_valid_observation_is_read_without_copying() -> None:
    value = wire()
    observation = Observation.from_wire(value, PATH, 2)
    assert len(observation) == 2
    assert observation.images["cam"] is value["images"]["cam"]
    assert observation.states["qpos"] is value["states"]["qpos"]
    assert observation.to_wire().keys() == value.keys()


def test_either_map_may_be_empty() -> None:
    assert len(Observation.from_wire(wire(images={}, states={}), PATH, 2)) == 2


@pytest.mark.parametrize("dtype", ["i1", "u2", "i8", "f2", "f4", "f8"])
def test_states_are_any_numeric_dtype(dtype: str) -> None:
    value = wire(states={"s": np.zeros((2, 1), dtype)})
    assert Observation.from_wire(value, PATH, 2).states["s"].dtype == dtype


def test_foreign_byte_order_is_normalised() -> None:
    value = wire(states={"s": np.array([[1.5], [2.5]], ">f8")}, text=np.array(["ä", "b"], ">U1"))
    observation = Observation.from_wire(value, PATH, 2)
    assert observation.states["s"].dtype.isnative
    assert observation.states["s"].tolist() == [[1.5], [2.5]]
    assert observation.text.dtype.isnative
    assert observation.text.tolist() == ["ä", "b"]


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (None, "infer.data: expected map, got nil"),
        ([], "infer.data: expected map, got list"),
        (wire(extra=1), "infer.data: unknown key 'extra', expected exactly images, states, text"),
        ({"images": {}, "states": {}}, "infer.data: missing key 'text'"),
        (wire(images=None), "infer.data.images: expected map, got nil"),
        (
            wire(images={"cam": np.zeros((2, 4, 4), np.uint8)}),
            "infer.data.images.cam: expected uint8[2,h,w,c], got uint8[2,4,4]",
        ),
        (
            wire(images={"cam": np.zeros((2, 4, 4, 3))}),
            "infer.data.images.cam: expected uint8[2,h,w,c], got float64[2,4,4,3]",
        ),
        (
            wire(images={"cam": np.zeros((2, 4, 4, 3), np.uint16)}),
            "infer.data.images.cam: expected uint8[2,h,w,c], got uint16[2,4,4,3]",
        ),
        (
            wire(images={"cam": np.zeros((3, 4, 4, 3), np.uint8)}),
            "infer.data.images.cam: expected uint8[2,h,w,c], got uint8[3,4,4,3]",
        ),
        (wire(images={"cam": b"jpeg"}), "infer.data.images.cam: expected uint8[2,h,w,c], got bin"),
        (wire(states={"q": np.zeros(2)}), "infer.data.states.q: expected float[2,d], got float[2]"),
        (wire(states={"q": np.zeros((1, 3))}), "infer.data.states.q: expected float[2,d], got float[1,3]"),
        (wire(states={"q": np.zeros((2, 3), bool)}), "infer.data.states.q: expected float[2,d], got bool[2,3]"),
        (wire(states={"q": np.array([["a"], ["b"]])}), "infer.data.states.q: expected float[2,d], got str[2,1]"),
        (wire(states={"q": [[1.0], [2.0]]}), "infer.data.states.q: expected float[2,d], got list"),
        (wire(states={b"q": np.zeros((2, 1))}), "infer.data.states: expected str keys, got bin b'q'"),
        (wire(text="ab"), "infer.data.text: expected str[2], got str"),
        (wire(text=np.array(["a"])), "infer.data.text: expected str[2], got str[1]"),
        (wire(text=np.array([["a"], ["b"]])), "infer.data.text: expected str[2], got str[2,1]"),
        (wire(text=["a"]), "infer.data.text: expected str[2], got str[1]"),
        (wire(text=["a", 1]), "infer.data.text: expected str[2], got int in row 1"),
        (wire(text=np.zeros(2)), "infer.data.text: expected str[2], got float[2]"),
    ],
)
def test_lesson_1_and_2_every_fault_is_named_with_its_path(value: Any, detail: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        Observation.from_wire(value, PATH, 2)
    assert str(caught.value) == detail


def test_text_of_a_msgpack_list_is_normalised_to_unicode() -> None:
    text = Observation.from_wire(wire(text=["pick", "放下😀"]), PATH, 2).text
    assert text.dtype == np.dtype("<U4")
    assert text.tolist() == ["pick", "放下😀"]


def test_one_long_string_does_not_cost_its_length_times_the_rows() -> None:
    value = {"images": {}, "states": {}, "text": ["x" * 100_000, *[""] * 49_999]}
    with pytest.raises(RemoteProtocolError, match="50000 strings padded to 100000 characters"):
        Observation.from_wire(value, PATH, 50_000)


def test_local_construction_blames_ourselves() -> None:
    with pytest.raises(LocalProtocolError) as caught:
        Observation({}, {"q": np.zeros(2)}, ["a", "b"])
    assert str(caught.value) == "observation.states.q: expected float[2,d], got float[2]"


def test_take_rows_by_slice_list_and_mask(observation: Make) -> None:
    whole = observation(4)
    for rows, expected in (
        (slice(1, 3), [1, 2]),
        ([3, 0], [3, 0]),
        (np.array([2]), [2]),
        (np.array([True, False, False, True]), [0, 3]),
        ([], []),
    ):
        part = whole.take(rows)
        assert len(part) == len(expected)
        assert part.text.tolist() == [f"task {row}" for row in expected]
        assert part.states["qpos"].tolist() == whole.states["qpos"][expected].tolist()
        assert part.images["cam"].shape == (len(expected), 2, 2, 3)


def test_concat_is_the_inverse_of_take(observation: Make) -> None:
    whole = observation(5)
    back = Observation.concat([whole.take(slice(0, 2)), whole.take(slice(2, 2)), whole.take(slice(2, 5))])
    assert back.text.tolist() == whole.text.tolist()
    assert np.array_equal(back.states["qpos"], whole.states["qpos"])
    assert np.array_equal(back.images["cam"], whole.images["cam"])


def test_concat_refuses_parts_of_different_kinds(observation: Make) -> None:
    with pytest.raises(LocalProtocolError, match=r"states.qpos.*\(2,\).*\(5,\)"):
        Observation.concat([observation(1), observation(1, width=5)])
    with pytest.raises(LocalProtocolError, match="cannot concatenate"):
        Observation.concat([observation(1), Observation({}, {}, ["x"])])
    with pytest.raises(LocalProtocolError, match="nothing to concatenate"):
        Observation.concat([])
