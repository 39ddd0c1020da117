"""Whatever is read in whatever pieces, the messages are those that websockets' core alone would have found."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_server.serving.connection.websocket.frames import KEPT_SIZE, READ_SIZE, FrameReader
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

MAX_SIZE = 300


def read_into(reader, data):
    """Read data as an event loop does; return the pieces found."""
    pieces = []
    while data:
        space = reader.space()
        part, data = data[: len(space)], data[len(space) :]
        space[: len(part)] = part
        reader.added(len(part))
        while (piece := reader.take()) is not None:
            pieces.append((bytes(piece.data), piece.is_message))
    return pieces


def frames(max_size=MAX_SIZE):
    reader = FrameReader(max_size)
    read_into(reader, b"GET / HTTP/1.1\r\n\r\n")
    assert reader.begin_frames()
    return reader


def binary(data, **options):
    return Frame(Opcode.BINARY, data, **options).serialize(mask=True)


def core_alone(chunks):
    core, seen = ServerProtocol(state=State.OPEN, max_size=MAX_SIZE), []
    for chunk in chunks:
        core.receive_data(chunk)
        seen += [(event.opcode, bytes(event.data), event.fin) for event in core.events_received()]
    return seen, core


def core_behind_reader(chunks):
    core, seen, reader = ServerProtocol(state=State.OPEN, max_size=MAX_SIZE), [], frames()
    for chunk in chunks:
        for data, is_message in read_into(reader, chunk):
            if is_message:
                if core.state is State.OPEN and core.close_rcvd is None:
                    seen.append((Opcode.BINARY, data, True))
            else:
                core.receive_data(data)
                seen += [(event.opcode, bytes(event.data), event.fin) for event in core.events_received()]
    return seen, core


payloads = st.integers(0, MAX_SIZE + 20).map(os.urandom)
any_frame = st.one_of(
    payloads.map(binary),
    payloads.map(lambda data: binary(data, fin=False)),
    payloads.map(lambda data: Frame(Opcode.CONT, data).serialize(mask=True)),
    payloads.map(lambda data: Frame(Opcode.CONT, data, fin=False).serialize(mask=True)),
    payloads.map(lambda data: Frame(Opcode.TEXT, data).serialize(mask=True)),
    st.binary(max_size=125).map(lambda data: Frame(Opcode.PING, data).serialize(mask=True)),
    st.just(Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=True)),
    st.just(binary(b"unmasked")).map(lambda data: bytes([data[0], data[1] & 0x7F, *data[2:]])),
    st.binary(min_size=1, max_size=20),
)


@given(st.lists(st.one_of(payloads.map(binary), any_frame), max_size=8), st.data())
def test_messages_are_those_of_the_core_alone(sent, data):
    stream = b"".join(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]
    expected, alone = core_alone(chunks)
    found, behind = core_behind_reader(chunks)
    assert found == expected
    assert behind.state is alone.state
    assert type(behind.parser_exc) is type(alone.parser_exc)
    assert b"".join(behind.data_to_send()) == b"".join(alone.data_to_send())


def test_a_whole_binary_message_is_unmasked_and_not_shown_to_the_core():
    assert read_into(frames(), binary(b"hello")) == [(b"hello", True)]


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 3 * READ_SIZE])
def test_every_form_of_length(size):
    message = os.urandom(size)
    assert read_into(frames(2**24), binary(message) + binary(b"next")) == [(message, True), (b"next", True)]


def test_a_message_is_a_copy_that_later_reads_leave_alone():
    reader = frames()
    (first, _), *_ = read_into(reader, binary(b"first"))
    read_into(reader, binary(b"other"))
    assert first == b"first"


def test_a_frame_that_only_claims_to_be_large_takes_no_memory():
    reader = frames(2**30)
    read_into(reader, b"\x82\xff" + (2**29).to_bytes(8, "big") + b"mask" + b"only this")
    assert len(reader.space()) <= READ_SIZE


def test_memory_of_a_very_large_message_is_given_back():
    reader = frames(2**26)
    read_into(reader, binary(bytes(2 * KEPT_SIZE)))
    assert len(reader.space()) == READ_SIZE


@pytest.mark.parametrize("parts", [[b"GET / HTTP/1.1\r\n\r\n"], [b"GET / HTTP/1.1\r\n\r", b"\n"]])
@pytest.mark.parametrize("more", [b"", b"\x82"])
def test_nothing_may_follow_the_request_before_its_response(parts, more):
    reader = FrameReader(MAX_SIZE)
    for part in [*parts[:-1], parts[-1] + more]:
        assert read_into(reader, part) == [(part, False)]
    assert reader.begin_frames() is (not more)
