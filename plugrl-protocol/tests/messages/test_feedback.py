"""SPEC 5.4: exactly five keys, every row belongs to one env."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plugrl_protocol.closing import RESYNC
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.errors import LocalProtocolError, RemoteProtocolError
from plugrl_protocol.messages import Feedback

Make = Callable[..., Any]


def test_round_trip(feedback: Make) -> None:
    sent = feedback([9, 4], rewards=np.array([0.5, np.nan]), info={"episode": {"r": np.array([1.0, 2.0])}})
    got = Feedback.from_wire(decode(encode(sent.to_wire())))
    assert got.env_indices.tolist() == [9, 4]
    assert got.rewards.dtype == np.float32
    assert got.rewards[0] == 0.5
    assert np.isnan(got.rewards[1])  # whether NaN may be learnt from is the server's business (lesson 3)
    assert got.terminated.tolist() == [True, False]
    assert got.truncated.tolist() == [False, False]
    assert len(got.observation) == 2
    assert list(got.info_rows()) == [{"episode": {"r": 1.0}}, {"episode": {"r": 2.0}}]


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"rewards": np.zeros((3, 1))}, "feedback.data.rewards: expected float[3], got float[3,1]"),
        ({"rewards": np.zeros(2)}, "feedback.data.rewards: expected float[3], got float[2]"),
        ({"rewards": np.zeros(3, int)}, "feedback.data.rewards: expected float[3], got int[3]"),
        ({"rewards": np.array(["1", "2", "3"])}, "feedback.data.rewards: expected float[3], got str[3]"),
        ({"rewards": 1.0}, "feedback.data.rewards: expected float[3], got float"),
        ({"terminated": np.zeros(3)}, "feedback.data.terminated: expected bool[3], got float[3]"),
        ({"truncated": np.zeros(4, bool)}, "feedback.data.truncated: expected bool[3], got bool[4]"),
        ({"info": None}, "feedback.data.info: expected map, got nil"),
        ({"info": {"task": "pick"}}, "feedback.data.info: expected an array of 3 rows to split it by, got none"),
        ({"info": {"episode": 1}}, "feedback.data.info.episode: expected map, got int"),
        ({"obs": None}, "feedback.data.obs: expected map, got nil"),
        (
            {"extra": 1},
            "feedback.data: unknown key 'extra', expected exactly info, obs, rewards, terminated, truncated",
        ),
    ],
)
def test_lesson_2_faults_in_the_data(changes: dict[str, Any], detail: str, feedback: Make) -> None:
    wire = feedback([0, 1, 2]).to_wire()
    with pytest.raises(RemoteProtocolError) as caught:
        Feedback.from_wire(wire | {"data": wire["data"] | changes})
    assert str(caught.value) == detail
    assert caught.value.close == RESYNC


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"env_indices": np.array([0, -1, 2])}, "feedback.env_indices: expected 0..65535, got -1"),
        ({"env_indices": np.array([0, 1])}, "feedback.step_ids: expected int[2], got int[3]"),
        ({"step_ids": None}, "feedback.step_ids: expected int[3], got nil"),
        ({"data": None}, "feedback.data: expected map, got nil"),
    ],
)
def test_faults_in_the_envelope(changes: dict[str, Any], detail: str, feedback: Make) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        Feedback.from_wire(feedback([0, 1, 2]).to_wire() | changes)
    assert str(caught.value) == detail


@pytest.mark.parametrize("key", ["data", "env_indices", "step_ids"])
def test_missing_keys_of_the_envelope(key: str, feedback: Make) -> None:
    wire = feedback([0]).to_wire()
    del wire[key]
    with pytest.raises(RemoteProtocolError, match=f"feedback: missing key '{key}'"):
        Feedback.from_wire(wire)


@pytest.mark.parametrize("key", ["obs", "rewards", "terminated", "truncated", "info"])
def test_missing_keys_of_the_data(key: str, feedback: Make) -> None:
    wire = feedback([0]).to_wire()
    del wire["data"][key]
    with pytest.raises(RemoteProtocolError, match=rf"feedback\.data: missing key '{key}'"):
        Feedback.from_wire(wire)


@pytest.mark.parametrize("rows", [1, 3])
def test_lesson_1_rows_are_checked_against_env_indices(rows: int, feedback: Make, observation: Make) -> None:
    wire = feedback([0, 1]).to_wire()
    wire["data"]["obs"] = observation(rows).to_wire()
    with pytest.raises(RemoteProtocolError, match=rf"feedback\.data\.obs\.text: expected str\[2\], got str\[{rows}\]"):
        Feedback.from_wire(wire)
    with pytest.raises(LocalProtocolError, match=rf"feedback\.data\.obs: expected 2 rows, got {rows}"):
        feedback([0, 1], observation=observation(rows))


def test_local_faults_are_ours(feedback: Make) -> None:
    with pytest.raises(LocalProtocolError, match=r"feedback\.data\.rewards: expected float\[3\], got float\[3,1\]"):
        feedback([0, 1, 2], rewards=np.zeros((3, 1)))
