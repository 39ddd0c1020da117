import corpus
import frame_target
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_protocol.closing import Close
from plugrl_protocol.errors import RemoteProtocolError
from plugrl_protocol.messages.templates import MessageReader
from plugrl_protocol.observation import Observation

FRAMES = corpus.load("frame")


@pytest.mark.parametrize("name", FRAMES)
def test_every_frame_of_the_corpus_keeps_the_promises(name):
    assert frame_target.run(FRAMES[name])


@given(st.binary(max_size=100))
def test_so_do_arbitrary_bytes(frame):
    assert frame_target.run(frame)


def test_another_exception_is_a_finding(monkeypatch):
    def broken(value):
        raise KeyError("data")

    monkeypatch.setattr(frame_target, "message_from_wire", broken)
    with pytest.raises(KeyError):
        frame_target.run(FRAMES["infer"])


def test_a_decoder_that_disagrees_with_the_careful_one_is_a_finding(monkeypatch):
    right = frame_target.decode
    monkeypatch.setattr(frame_target, "decode", lambda frame: right(frame) | {"env_indices": np.zeros(1, np.int32)})
    with pytest.raises(AssertionError, match="the careful reader"):
        frame_target.run(FRAMES["infer"])


def test_a_wrong_value_that_its_key_replaces_is_nothing_to_find():
    right, wrong = b"\x01", b"\x81\xc4\x0b__ndarray__\xc3"
    assert frame_target.run(b"\x82\xa1k" + wrong + b"\xa1k" + right) == "a key that comes twice"
    assert frame_target.run(b"\x82\xa1k" + right + b"\xa1k" + wrong) == "3.2 codec/array"
    assert frame_target.repeats_a_key(b"\x91\x82\xa1k\x01\xa1k\x01")
    assert not frame_target.repeats_a_key(b"\x91\x82\xa1k\x01\xa1l\x01")


def test_a_value_that_does_not_come_back_is_a_finding(monkeypatch):
    right = frame_target.encode
    monkeypatch.setattr(frame_target, "encode", lambda value: right(value | {"more": 1}))
    with pytest.raises(AssertionError, match="came back as"):
        frame_target.run(FRAMES["infer"])


def test_a_template_that_trusts_too_much_is_a_finding(monkeypatch):
    class Careless(MessageReader):
        def read(self, frame):
            self.first = getattr(self, "first", None) or super().read(frame)
            return self.first

    monkeypatch.setattr(frame_target, "MessageReader", Careless)
    with pytest.raises(AssertionError, match="by template"):
        frame_target.run(FRAMES["infer"])


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RemoteProtocolError("9.9 no/clause", "x"), "not in SPEC.md"),
        (RemoteProtocolError("3 codec/msgpack", ""), "0 characters"),
        (RemoteProtocolError("3 codec/msgpack", "x" * 3000), "3000 characters"),
        (RemoteProtocolError("3 codec/msgpack", "a\nb"), "breaks a log line"),
        (RemoteProtocolError("3 codec/msgpack", "x", Close(1008, "ä" * 70)), "too long to send"),
    ],
)
def test_a_refusal_that_cannot_be_shown_is_a_finding(error, text):
    with pytest.raises(AssertionError, match=text):
        frame_target.check_refusal(error)


@pytest.mark.parametrize(
    ("indices", "column"), [([], None), ([1, 1], None), ([-1], None), ([65_536], None), ([0], np.zeros(2))]
)
def test_rows_that_do_not_fit_are_a_finding(indices, column):
    with pytest.raises(AssertionError):
        frame_target.check_rows(np.array(indices, np.int64), column)


def test_an_observation_of_other_rows_is_a_finding():
    observation = Observation({}, {"obs": np.zeros((2, 1))}, ["", ""])
    frame_target.check_observation(observation, 2)
    with pytest.raises(AssertionError):
        frame_target.check_observation(observation, 3)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, True, False), (1.5, np.float64(1.5), True), (float("nan"), float("nan"), True), (0.5, 1.5, False),
        ([1, "a"], [1, "a"], True), ([1], [1, 2], False), ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        (np.zeros(2), np.zeros(2), True), (np.zeros(2), np.zeros(2, np.float32), False),
        (np.zeros((1, 2)), np.zeros((2, 1)), False), (np.array([0.0]), np.array([-0.0]), False),
        (np.float32("nan"), np.float32("nan"), True), (b"x", "x", False),
    ],
)  # fmt: skip
def test_same(one, other, equal):
    assert frame_target.same(one, other) is equal
