"""SPEC 2: the envelope; and frames written by hand, which our own code must read and write to the byte."""

from typing import Any

import numpy as np
import pytest
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.errors import RemoteProtocolError
from plugrl_protocol.messages import Action, Feedback, Infer, Message, Metadata, message_from_wire
from plugrl_protocol.observation import Observation

TYPE = "ac 6d657373616765 5f 74797065"  # "message_type"
DATA = "a4 64617461"  # "data"
NDARRAY = "84 c40b 5f5f6e6461727261795f5f c3 c404 64617461"  # {b"__ndarray__": true, b"data":
DTYPE = "c405 6474797065"  # b"dtype":
SHAPE = "c405 7368617065"  # b"shape":
ENV_INDICES = f"ab 656e765f696e6469636573 {NDARRAY} c408 0300000000000000 {DTYPE} a3 3c6938 {SHAPE} 91 01"  # <i8 [3]
STEP_IDS = f"a8 737465705f696473 {NDARRAY} c408 0200000000000000 {DTYPE} a3 3c6938 {SHAPE} 91 01"  # <i8 [2]
OBSERVATION = (
    "83"
    f" a6 696d61676573 81 a1 63 {NDARRAY} c403 0102ff {DTYPE} a3 7c7531 {SHAPE} 94 01 01 01 03"  # images.c |u1
    f" a6 737461746573 81 a1 73 {NDARRAY} c408 000000000000f83f {DTYPE} a3 3c6638 {SHAPE} 92 01 01"  # states.s <f8 1.5
    f" a4 74657874 {NDARRAY} c408 6100000000f60100 {DTYPE} a3 3c5532 {SHAPE} 91 01"  # text <U2 "a😀"
)
FLAG = f"{NDARRAY} c401 01 {DTYPE} a3 7c6231 {SHAPE} 91 01"
NO_FLAG = f"{NDARRAY} c401 00 {DTYPE} a3 7c6231 {SHAPE} 91 01"

METADATA = f"82 {TYPE} a8 6d65746164617461 {DATA} 81 b0 70726f746f636f6c5f76657273696f6e 01"  # protocol_version: 1
INFER = f"84 {TYPE} a5 696e666572 {DATA} {OBSERVATION} {ENV_INDICES} {STEP_IDS}"
ACTION = (
    f"82 {TYPE} a6 616374696f6e {DATA} 82"
    f" a7 656e765f696473 {NDARRAY} c408 0300000000000000 {DTYPE} a3 3c6938 {SHAPE} 91 01"
    f" a6 616374696f6e {NDARRAY} c408 0000803f 000000c0 {DTYPE} a3 3c6634 {SHAPE} 93 02 01 01"  # <f4 [[[1]], [[-2]]]
)
FEEDBACK = (
    f"84 {TYPE} a8 666565646261636b {DATA} 85 a3 6f6273 {OBSERVATION}"
    f" a7 72657761726473 {NDARRAY} c404 0000003f {DTYPE} a3 3c6634 {SHAPE} 91 01"  # <f4 0.5
    f" aa 7465726d696e61746564 {FLAG} a9 7472756e6361746564 {NO_FLAG} a4 696e666f 80"
    f" {ENV_INDICES} {STEP_IDS}"
)
ONE = np.array([3])
TWO = np.array([2])
ROW = Observation({"c": np.array([[[[1, 2, 255]]]], np.uint8)}, {"s": np.array([[1.5]])}, ["a😀"])
GOLDEN = {
    METADATA: Metadata({"protocol_version": 1}),
    INFER: Infer(ROW, ONE, TWO),
    ACTION: Action(np.array([[[1]], [[-2]]], np.float32), ONE),
    FEEDBACK: Feedback(ONE, TWO, ROW, np.array([0.5], np.float32), np.array([True]), np.array([False]), {}),
}


@pytest.mark.parametrize(("hexes", "message"), GOLDEN.items(), ids=["metadata", "infer", "action", "feedback"])
def test_hand_written_frames(hexes: str, message: Message) -> None:
    frame = bytes.fromhex(hexes)
    assert encode(message.to_wire()) == frame
    back = message_from_wire(decode(frame))
    assert type(back) is type(message)
    assert encode(back.to_wire()) == frame


@pytest.mark.parametrize(
    ("hexes", "array"),
    [
        (f"{NDARRAY} c406 0001 0002 0003 {DTYPE} a3 3e7532 {SHAPE} 91 03", np.array([1, 2, 3], ">u2")),
        (f"{NDARRAY} c402 003e {DTYPE} a3 3c6632 {SHAPE} 90", np.array(1.5, "<f2")),
        (f"{NDARRAY} c400 {DTYPE} a3 3c6634 {SHAPE} 92 00 03", np.zeros((0, 3), "<f4")),
        (f"{NDARRAY} c404 01000203 {DTYPE} a3 7c6931 {SHAPE} 92 02 02", np.array([[1, 0], [2, 3]], "i1")),
        (f"{NDARRAY} c404 01020003 {DTYPE} a3 7c6931 {SHAPE} 92 02 02", np.array([[1, 0], [2, 3]], "i1").T),
    ],
)
def test_hand_written_openpi_arrays(hexes: str, array: np.ndarray) -> None:
    frame = bytes.fromhex(hexes)
    assert encode(array) == frame
    back = decode(frame)
    assert (back.dtype.str, back.shape) == (array.dtype.str, array.shape)
    assert np.array_equal(back, array)


def test_hand_written_openpi_scalar() -> None:
    frame = bytes.fromhex(f"83 c40d 5f5f6e7067656e657269635f5f c3 c404 64617461 05 {DTYPE} a3 3c6932")
    assert encode(np.int16(5)) == frame
    assert decode(frame) == np.int16(5)


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (None, "message: expected map, got nil"),
        ([1], "message: expected map, got list"),
        ("infer", "message: expected map, got str"),
        (np.zeros(2), "message: expected map, got float[2]"),
        ({}, "message.message_type: expected str, got nil"),
        ({"message_type": 3}, "message.message_type: expected str, got int"),
        ({"message_type": b"infer"}, "message.message_type: expected str, got bin"),
        ({"message_type": "reset"}, "message.message_type: expected metadata, infer, action, feedback, got 'reset'"),
        ({"message_type": "metadata", b"x": 1}, "message: expected str keys, got bin b'x'"),
    ],
)
def test_lesson_2_what_is_no_message(value: Any, detail: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        message_from_wire(value)
    assert str(caught.value) == detail
    assert caught.value.clause == "2 envelope/message-type"


def test_unknown_keys_are_ignored() -> None:
    assert message_from_wire({"later": [1], "message_type": "metadata", "data": {}})
