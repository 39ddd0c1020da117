"""SPEC 5.4 info: splitting into rows (lesson 18)."""

from typing import Any

import numpy as np
import pytest
from plugrl_protocol.errors import LocalProtocolError
from plugrl_protocol.info import InfoRows


def test_an_empty_info_gives_every_row_an_empty_map() -> None:
    rows = InfoRows({}, 3)
    assert len(rows) == 3
    assert list(rows) == [{}, {}, {}]


def test_arrays_are_split_at_the_top_level_and_one_level_down_the_rest_is_broadcast() -> None:
    info = {
        "episode": {"r": np.array([1.5, 2.5]), "l": np.array([3, 4]), "mask": True},
        "task": "pick",
        "pose": np.array([[1.0, 2.0], [3.0, 4.0]]),
        "table": np.arange(5),
        "names": np.array(["a", "b"]),
        "deep": {"deeper": {"x": np.array([1, 2])}},
    }
    row = InfoRows(info, 2)[1]
    assert row["episode"] == {"r": 2.5, "l": 4, "mask": True}
    assert type(row["episode"]["r"]) is float
    assert type(row["episode"]["l"]) is int
    assert (row["task"], row["names"]) == ("pick", "b")
    assert row["pose"].tolist() == [3.0, 4.0]
    assert row["table"].tolist() == [0, 1, 2, 3, 4]
    assert row["deep"]["deeper"]["x"].tolist() == [1, 2]


def test_rows_are_a_sequence() -> None:
    rows = InfoRows({"x": np.array([1, 2, 3])}, 3)
    assert rows[-1] == {"x": 3}
    assert rows[1:] == [{"x": 2}, {"x": 3}]
    with pytest.raises(IndexError):
        rows[3]
    with pytest.raises(IndexError):
        rows[-4]


@pytest.mark.parametrize(
    "info",
    [
        {"task": "pick"},
        {"r": [1.0, 2.0, 3.0]},
        {"x": np.arange(4)},
        {"x": np.array(1.0)},
        {"a": {"b": {"c": np.arange(3)}}},
        {"episode": {}},
    ],
)
def test_an_info_without_an_array_of_the_row_count_cannot_be_split(info: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError, match=r"feedback\.data\.info: expected an array of 3 rows") as caught:
        InfoRows(info, 3)
    assert caught.value.clause == "5.4 feedback/info"


def test_one_row_needs_no_array() -> None:
    info = {"task": "pick", "episode": {"r": 3.0, "l": 2, "s": True, "mask": False}}
    assert list(InfoRows(info, 1)) == [info]
    assert InfoRows({"x": np.array([7])}, 1)[0] == {"x": 7}


@pytest.mark.parametrize(
    ("episode", "text"),
    [
        ([], "info.episode: expected map, got list"),
        ({"r": np.array(["a", "b"])}, r"info.episode.r: expected float\[2\], got str\[2\]"),
        ({"r": np.array([[1.0], [2.0]])}, r"info.episode.r: expected float\[2\], got float\[2,1\]"),
        ({"r": np.arange(3.0)}, r"info.episode.r: expected float\[2\], got float\[3\]"),
        ({"r": [1.0, 2.0]}, r"info.episode.r: expected float\[2\], got list"),
        ({"r": "high"}, r"info.episode.r: expected float\[2\], got str"),
        ({"l": np.array([1.0, 2.0])}, r"info.episode.l: expected int\[2\], got float\[2\]"),
        ({"s": np.array([1, 0])}, r"info.episode.s: expected bool\[2\], got int\[2\]"),
        ({"mask": None}, r"info.episode.mask: expected bool\[2\], got nil"),
    ],
)
def test_lesson_2_a_non_numeric_episode_is_refused(episode: Any, text: str) -> None:
    with pytest.raises(LocalProtocolError, match=text) as caught:
        InfoRows({"episode": episode, "x": np.arange(2)}, 2)
    assert caught.value.clause == "5.4 feedback/episode"
