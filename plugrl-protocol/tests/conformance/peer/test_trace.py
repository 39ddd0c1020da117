"""The trace tells what was said, whatever it was."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_protocol.codec import encode
from plugrl_protocol.conformance.peer.trace import KEPT, Trace, summary


def test_a_line_an_event_with_its_time_and_who(infer):
    trace = Trace()
    trace.add("client", encode(infer([3, 1]).to_wire()))
    trace.add("checker", "closes with 1001 plugrl-server-stop")
    first, second = trace.lines()

    assert " s  client: infer images.cam=uint8[2,2,2,3] states.qpos=float64[2,2] text=str[2]" in first
    assert "env_indices=<i8[3, 1]" in first
    assert second.endswith(" s  checker: closes with 1001 plugrl-server-stop")


def test_only_the_last_events_are_kept():
    trace = Trace()
    for number in range(KEPT + 5):
        trace.add("client", f"event {number}")

    assert len(trace.lines()) == KEPT
    assert trace.lines()[0].endswith("event 5")


def test_numbers_are_short_and_long_arrays_are_described():
    told = summary(encode({"message_type": "x", "a": np.linspace(0, 1, 4), "b": np.zeros(9), "c": 1 / 3, "d": "s"}))

    assert told == "x a=<f8[0, 0.3333, 0.6667, 1] b=float64[9] c=0.3333 d='s'"


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (b"\xc1", "undecodable, message: msgpack type 0xc1"),
        (b"\x93\x01\x02\x03", "no map but list"),
        (encode({"message_type": "\n"}), "?"),
        (encode({"message_type": 3, "data": None}), "? data=nil"),
        (encode({"message_type": "x", "data": {}}), "x data={}"),
        (b"\xc1" * 100, "c1..."),
    ],
)
def test_odd_frames(frame, told):
    assert told in summary(frame)


def test_a_map_of_many_keys_is_cut():
    assert summary(encode({str(number): number for number in range(1000)})).endswith("...")


@given(st.binary(max_size=60))
def test_no_bytes_make_it_fail(frame):
    assert summary(frame)
