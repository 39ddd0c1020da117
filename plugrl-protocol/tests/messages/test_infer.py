"""SPEC 5.2, 10.1, 10.2: the request for chunks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.errors import LocalProtocolError, RemoteProtocolError
from plugrl_protocol.messages import Infer
from plugrl_protocol.spaces import Declaration, DiscreteSpace

Make = Callable[..., Any]


def test_round_trip(infer: Make) -> None:
    sent = infer([7, 2], step_ids=np.array([4, 0]), spaces=Declaration(DiscreteSpace(2)))
    got = Infer.from_wire(decode(encode(sent.to_wire())))
    assert got.env_indices.tolist() == [7, 2]
    assert got.step_ids.tolist() == [4, 0]
    assert got.observation.text.tolist() == ["task 0", "task 1"]
    assert got.spaces == sent.spaces
    assert got.reuse is None


def test_a_reused_row_sends_no_observation(infer: Make, observation: Make) -> None:
    reuse = np.array([True, False, True])
    sent = infer([5, 6, 7], observation=observation(1), reuse=reuse)
    got = Infer.from_wire(decode(encode(sent.to_wire())))
    assert got.reuse is not None
    assert got.reuse.tolist() == [True, False, True]
    assert len(got.observation) == 1
    everything = infer([5], observation=observation(0), reuse=np.array([True]))
    assert len(Infer.from_wire(decode(encode(everything.to_wire()))).observation) == 0


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"env_indices": None}, "infer.env_indices: expected int[n], got nil"),
        ({"env_indices": np.zeros(0, int)}, "infer.env_indices: expected at least one env, got int[0]"),
        ({"env_indices": np.array([0, 0])}, "infer.env_indices: env 0 is named twice"),
        ({"env_indices": np.array([0, 70_000])}, "infer.env_indices: expected 0..65535, got 70000"),
        ({"step_ids": np.zeros((2, 1), int)}, "infer.step_ids: expected int[2], got int[2,1]"),
        ({"step_ids": np.zeros(2)}, "infer.step_ids: expected int[2], got float[2]"),
        ({"reuse": np.zeros(3, bool)}, "infer.reuse: expected bool[2], got bool[3]"),
        ({"reuse": True}, "infer.reuse: expected bool[2], got bool"),
        ({"reuse": np.array([True, False])}, "infer.data.text: expected str[1], got str[2]"),
        ({"spaces": []}, "infer.spaces: expected map, got list"),
        ({"spaces": {"action": {"kind": "discrete"}}}, "infer.spaces.action: missing key 'n'"),
        ({"data": None}, "infer.data: expected map, got nil"),
    ],
)
def test_faults(changes: dict[str, Any], detail: str, infer: Make) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        Infer.from_wire(infer([0, 1]).to_wire() | changes)
    assert str(caught.value) == detail


@pytest.mark.parametrize("key", ["data", "env_indices", "step_ids"])
def test_missing_keys(key: str, infer: Make) -> None:
    wire = infer([0]).to_wire()
    del wire[key]
    with pytest.raises(RemoteProtocolError, match=f"infer: missing key '{key}'"):
        Infer.from_wire(wire)


@pytest.mark.parametrize("rows", [1, 3])
def test_lesson_1_rows_are_checked_against_env_indices(rows: int, infer: Make, observation: Make) -> None:
    wire = infer([0, 1]).to_wire() | {"data": observation(rows).to_wire()}
    with pytest.raises(RemoteProtocolError, match=rf"infer\.data\.text: expected str\[2\], got str\[{rows}\]"):
        Infer.from_wire(wire)
    with pytest.raises(LocalProtocolError, match=rf"infer\.data: expected 2 rows, got {rows}"):
        infer([0, 1], observation=observation(rows))


def test_unknown_keys_of_the_envelope_are_ignored(infer: Make) -> None:
    assert Infer.from_wire(infer([0]).to_wire() | {"later": 1})
