"""A reader with templates reads what the whole way reads, and refuses what it refuses."""

import random
import tracemalloc

import numpy as np
import pytest
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.errors import RemoteProtocolError
from plugrl_protocol.messages import Action, Feedback, Infer, message_from_wire
from plugrl_protocol.messages.templates import MessageReader
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import Declaration, DiscreteSpace

RNG = np.random.default_rng(0)


def observation(rows, images=False):
    pictures = {"cam": RNG.integers(0, 255, (rows, 48, 48, 3), np.uint8)} if images else {}
    return Observation(pictures, {"b": RNG.normal(size=(rows, 3)), "a": RNG.normal(size=(rows, 2))}, ["go"] * rows)


def infer(rows=2, images=False, **more):
    return Infer(observation(rows, images), np.arange(rows), RNG.integers(0, 9, rows), **more)


def feedback(rows=2, info=None):
    flags = RNG.integers(0, 2, (2, rows)).astype(bool)
    rewards = RNG.normal(size=rows).astype(np.float32)
    return Feedback(np.arange(rows), RNG.integers(0, 9, rows), observation(rows), rewards, *flags, info or {})


def action(rows=2):
    return Action(RNG.normal(size=(4, rows, 3)).astype(np.float32), np.arange(rows))


KINDS = {
    "infer": infer,
    "infer with images": lambda: infer(images=True),
    "infer that reuses": lambda: Infer(observation(1), np.arange(2), np.arange(2), reuse=np.array([True, False])),
    "infer that reuses all": lambda: Infer(observation(0), np.arange(2), np.arange(2), reuse=np.array([True, True])),
    "infer that declares": lambda: infer(spaces=Declaration(DiscreteSpace(2))),
    "feedback": feedback,
    "feedback with info": lambda: feedback(info={"speed": RNG.normal(size=2)}),
    "action": action,
}


def frame(message):
    return encode(message.to_wire())


def outcome(read, data):
    """What a reader makes of a frame, comparable: the message as it would travel, or the refusal."""
    try:
        message = read(data)
    except RemoteProtocolError as error:
        return error.clause, str(error)
    return type(message).__name__, encode(message.to_wire())


def whole_way(data):
    return message_from_wire(decode(data))


@pytest.mark.parametrize("kind", KINDS)
def test_reads_what_the_whole_way_reads(kind):
    reader = MessageReader()
    for _ in range(8):
        data = frame(KINDS[kind]())
        assert outcome(reader.read, data) == outcome(whole_way, data)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {"infer that declares", "feedback with info"}])
def test_the_whole_way_is_gone_only_at_first(kind, monkeypatch):
    reader = MessageReader()
    for _ in range(3):
        reader.read(frame(KINDS[kind]()))
    monkeypatch.setattr("plugrl_protocol.messages.templates.decode", pytest.fail)
    data = frame(KINDS[kind]())

    assert encode(reader.read(data).to_wire()) == data


@pytest.mark.parametrize("kind", KINDS)
def test_every_mutation_is_judged_as_the_whole_way_judges_it(kind):
    reader, random_ = MessageReader(), random.Random(kind)
    for _ in range(4):
        reader.read(frame(KINDS[kind]()))
    for _ in range(400):
        data = bytearray(frame(KINDS[kind]()))
        for _ in range(random_.randint(1, 3)):
            data[random_.randrange(len(data))] = random_.choice((0, 1, 2, 0x7F, 0xC0, 0xFF, random_.randrange(256)))
        assert outcome(reader.read, bytes(data)) == outcome(whole_way, bytes(data))


@pytest.mark.parametrize(
    ("indices", "clause"),
    [([0, 0], "4.4 indices/unique"), ([0, -1], "4.4 indices/range"), ([65_536, 0], "4.4 indices/range")],
)
def test_env_indices_are_looked_at_every_time(indices, clause):
    """Lesson 2: duplicate, negative and too large indices."""
    reader = MessageReader()
    for _ in range(4):
        reader.read(frame(infer()))
    wire = infer().to_wire()
    wire["env_indices"] = np.array(indices)

    with pytest.raises(RemoteProtocolError) as error:
        reader.read(encode(wire))
    assert error.value.clause == clause


def test_other_env_indices_are_read():
    reader = MessageReader()
    for envs in ([0, 1], [0, 1], [0, 1], [7, 3]):
        message = reader.read(frame(Infer(observation(2), np.array(envs), np.zeros(2, int))))
        assert message.env_indices.tolist() == envs


def test_flags_are_looked_at_every_time():
    reader = MessageReader()
    for _ in range(4):
        reader.read(frame(feedback()))
    good = feedback()
    flags = b"dtype\xa3|b1"
    data = bytearray(frame(good))
    data[data.index(flags) - 4] = 2  # the last flag: bin 5 "dtype" comes after it

    with pytest.raises(RemoteProtocolError):
        reader.read(bytes(data))


def test_arrays_are_read_only_and_do_not_share_memory_with_the_next_message():
    reader = MessageReader()
    messages = [reader.read(frame(feedback())) for _ in range(6)]

    assert not any(message.rewards.flags.writeable or message.env_indices.flags.writeable for message in messages[3:])
    assert not np.shares_memory(messages[4].rewards, messages[5].rewards)
    assert all(message.observation.states["a"].flags.aligned for message in messages)


def test_converted_arrays_go_the_whole_way():
    reader = MessageReader()
    for _ in range(6):
        wire = feedback().to_wire()
        wire["data"]["rewards"] = wire["data"]["rewards"].astype(np.float64)
        assert reader.read(encode(wire)).rewards.dtype == np.float32


def test_a_changing_text_costs_ever_fewer_templates(monkeypatch):
    made = []
    from plugrl_protocol.messages import templates

    of = templates._Template.of
    monkeypatch.setattr(templates._Template, "of", lambda data: made.append(1) or of(data))
    reader = MessageReader()
    for count in range(200):
        text = ["ab", "cd"][count % 2]
        reader.read(frame(Infer(Observation({}, {}, [text]), np.arange(1), np.zeros(1, int))))

    assert len(made) < 8


def test_a_peer_with_many_lengths_is_not_remembered_for_ever():
    reader = MessageReader()
    for size in range(1000):
        reader.read(frame(Infer(Observation({}, {}, ["x" * size]), np.arange(1), np.zeros(1, int))))

    assert len(reader._known) <= 64


def test_lesson_5_a_peer_cannot_fill_the_memory_with_templates():
    """Text is kept with a template; a few frames of each length would otherwise leave megabytes behind."""
    reader = MessageReader()
    frames = [
        frame(
            Infer(Observation({}, {"s": np.zeros((1, width))}, np.array(["x" * 250_000])), np.arange(1), np.arange(1))
        )
        for width in range(1, 9)
    ]
    tracemalloc.start()
    try:
        for data in frames * 5:
            reader.read(data)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < len(frames[0])
