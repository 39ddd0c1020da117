"""A writer with forms writes what `encode` writes, byte for byte, and refuses what it refuses."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_protocol.codec import encode
from plugrl_protocol.errors import LocalProtocolError
from plugrl_protocol.messages import Action, Feedback, Infer, Metadata
from plugrl_protocol.messages.forms import MessageWriter
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import Declaration, DiscreteSpace

RNG = np.random.default_rng(0)


def observation(rows, images=False, text="go", names=("b", "a"), dtype=np.float64, width=3):
    pictures = {"cam": RNG.integers(0, 255, (rows, 48, 48, 3), np.uint8)} if images else {}
    return Observation(pictures, {name: RNG.normal(size=(rows, width)).astype(dtype) for name in names}, [text] * rows)


def infer(rows=2, reuse=None, spaces=None, **seen):
    return Infer(observation(rows, **seen), np.arange(rows), RNG.integers(0, 9, rows), reuse, spaces)


def feedback(rows=2, info=None, **seen):
    flags = RNG.integers(0, 2, (2, rows)).astype(bool)
    rewards = RNG.normal(size=rows).astype(np.float32)
    return Feedback(np.arange(rows), RNG.integers(0, 9, rows), observation(rows, **seen), rewards, *flags, info or {})


def action(rows=2, dtype=np.float32):
    return Action((RNG.normal(size=(4, rows, 3)) * 9).astype(dtype), np.arange(rows))


KINDS = {
    "metadata": lambda: Metadata({"server": "x"}),
    "infer": infer,
    "infer of many": lambda: infer(600),
    "infer with images": lambda: infer(images=True),
    "infer without states": lambda: infer(names=()),
    "infer with states of no width": lambda: Infer(
        Observation({}, {"none": np.zeros((2, 0))}, ["", ""]), np.arange(2), RNG.integers(0, 9, 2)
    ),
    "infer that reuses": lambda: Infer(observation(1), np.arange(2), np.arange(2), np.array([True, False])),
    "infer that declares": lambda: infer(spaces=Declaration(DiscreteSpace(2))),
    "infer with states that lie otherwise": lambda: Infer(
        Observation({}, {"s": RNG.normal(size=(3, 2)).T}, ["", ""]), np.arange(2), np.arange(2)
    ),
    "feedback": feedback,
    "feedback with info": lambda: feedback(info={"speed": RNG.normal(size=2)}),
    "action": action,
    "action of flags": lambda: action(dtype=bool),
    "action without ids": lambda: Action(np.zeros((1, 2, 3)), None),
}
FORMED = [
    "infer",
    "infer without states",
    "infer with states that lie otherwise",
    "feedback",
    "action",
]


def written(writer, message):
    return b"".join(writer.write(message))


@pytest.mark.parametrize("kind", KINDS)
def test_writes_what_encode_writes(kind):
    writer = MessageWriter()
    for _ in range(8):
        message = KINDS[kind]()
        assert written(writer, message) == encode(message.to_wire())


@given(st.lists(st.sampled_from(sorted(KINDS)), max_size=60))
def test_kinds_take_turns(kinds):
    writer = MessageWriter()
    for kind in kinds:
        message = KINDS[kind]()
        assert written(writer, message) == encode(message.to_wire())


@pytest.mark.parametrize("kind", FORMED)
def test_the_whole_way_is_gone_only_at_first(kind, monkeypatch):
    writer = MessageWriter()
    for _ in range(3):
        writer.write(KINDS[kind]())
    message = KINDS[kind]()
    expected = encode(message.to_wire())
    monkeypatch.setattr("plugrl_protocol.messages.forms.encode", pytest.fail)
    assert written(writer, message) == expected


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        (infer, lambda: infer(dtype=np.float32)),
        (infer, lambda: infer(names=("a", "b"))),
        (infer, lambda: infer(names=("b", "c"))),
        (infer, lambda: infer(names=("b",))),
        (infer, lambda: infer(width=4)),
        (infer, lambda: infer(text="stop")),
        (infer, lambda: infer(text="no")),
        (feedback, lambda: feedback(text="stop")),
        (feedback, lambda: feedback(3)),
        (action, lambda: action(dtype=np.int16)),
        (action, lambda: Action(np.zeros((4, 2, 3), np.float32), None)),
    ],
)
def test_what_differs_in_more_than_its_numbers_goes_the_whole_way(usual, other):
    writer = MessageWriter()
    for make in (*[usual] * 6, other, usual, other):
        message = make()
        assert written(writer, message) == encode(message.to_wire())


@pytest.mark.parametrize("field", ["terminated", "truncated"])
def test_a_bool_that_is_neither_0_nor_1_is_refused_after_others(field):
    writer = MessageWriter()
    for _ in range(6):
        writer.write(feedback())
    odd = dataclasses.replace(feedback(), **{field: np.array([0, 2], np.uint8).view(np.bool_)})

    with pytest.raises(LocalProtocolError, match="expected bools of 0 or 1"):
        writer.write(odd)
    message = feedback()
    assert written(writer, message) == encode(message.to_wire())


def test_text_that_is_no_utf_32_is_refused_after_others():
    writer = MessageWriter()
    for _ in range(6):
        writer.write(infer(1, text="x"))
    surrogate = np.array([0xD800], np.uint32).view("<U1")

    with pytest.raises(LocalProtocolError, match="UTF-32"):
        writer.write(Infer(Observation({}, {}, surrogate), np.arange(1), np.zeros(1, int)))


def test_a_changing_text_costs_ever_fewer_forms(monkeypatch):
    made = []
    from plugrl_protocol.messages import forms

    of = forms._Form.of
    monkeypatch.setattr(forms._Form, "of", lambda *args: made.append(1) or of(*args))
    writer = MessageWriter()
    for count in range(200):
        writer.write(infer(text=["ab", "cd"][count % 2]))

    assert len(made) < 8


def test_forms_are_not_kept_for_ever():
    writer = MessageWriter()
    for rows in range(1, 300):
        writer.write(infer(rows))

    assert len(writer._known) <= 64


def test_large_arrays_are_pieces_of_their_own():
    message = infer(8, images=True)
    pieces = MessageWriter().write(message)
    assert any(
        np.shares_memory(piece, message.observation.images["cam"]) for piece in pieces if type(piece) is not bytes
    )
