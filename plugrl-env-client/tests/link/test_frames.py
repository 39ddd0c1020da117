"""The frames of whole binary messages, held against websockets' own core."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_env_client.link.frames import FrameSpotter, FrameWriter
from plugrl_protocol.codec import encode
from plugrl_protocol.connection import Connection, Role, Timeouts
from plugrl_protocol.messages import Infer
from plugrl_protocol.observation import Observation
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

SIZES = [0, 1, 7, 8, 9, 125, 126, 127, 65_535, 65_536, 300_001]


def received(frame: bytes) -> bytes:
    """What a server's core makes of a frame."""
    core = ServerProtocol(state=State.OPEN)
    core.receive_data(frame)
    (event,) = core.events_received()
    assert isinstance(event, Frame)
    assert (event.opcode, event.fin) == (Opcode.BINARY, True)
    return bytes(event.data)


def sent(payload: bytes, opcode: Opcode = Opcode.BINARY, *, fin: bool = True) -> bytes:
    """A server's frame."""
    return Frame(opcode, payload, fin).serialize(mask=False)


@pytest.mark.parametrize("size", SIZES)
def test_a_written_frame_is_read_by_websockets(size):
    message = np.random.default_rng(size).bytes(size)

    assert received(bytes(FrameWriter().write([message]))) == message


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_one_writer_writes_message_after_message(messages):
    writer = FrameWriter()
    assert [received(bytes(writer.write([message]))) for message in messages] == messages


def test_the_mask_changes_from_frame_to_frame():
    writer, message = FrameWriter(), bytes(64)

    assert len({bytes(writer.write([message])) for _ in range(8)}) == 8


@pytest.mark.parametrize("size", SIZES)
def test_a_read_of_one_whole_frame_is_spotted(size):
    payload = bytes(size)
    found = FrameSpotter().payload(memoryview(sent(payload)))

    assert found is not None
    assert bytes(found) == payload


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x82",
        sent(b"ab")[:-1],
        sent(b"ab") + b"\x82",
        sent(b"ab") * 2,
        sent(b"ab", Opcode.TEXT),
        sent(b"", Opcode.PING),
        sent(b"ab", fin=False),
        Frame(Opcode.BINARY, b"ab").serialize(mask=True),
    ],
    ids=range(9),  # masks are random, and ids must not be
)
def test_everything_else_is_for_the_core(data):
    assert FrameSpotter().payload(memoryview(data)) is None


@given(
    st.lists(
        st.sampled_from([(b"x" * size, op) for size in (0, 5, 200) for op in (Opcode.BINARY, Opcode.PING)]), max_size=6
    ),
    st.lists(st.integers(1, 40), max_size=30),
)
def test_no_frame_is_spotted_inside_another(frames, cuts):
    """However a stream is cut into reads, what is spotted are messages of it, and the core reads all the others."""
    stream = b"".join(
        sent(payload[:125], opcode) if opcode is Opcode.PING else sent(payload) for payload, opcode in frames
    )
    spotter, core, messages = FrameSpotter(), [], []
    for size in [*cuts, len(stream) + 1]:
        data, stream = stream[:size], stream[size:]
        payload = spotter.payload(memoryview(data))
        if payload is not None:
            messages.append((len(b"".join(core)), bytes(payload)))
        elif data:
            spotter.fed(memoryview(data))
            core.append(data)
    expected = [payload for payload, opcode in frames if opcode is Opcode.BINARY]
    assert sorted([payload for _, payload in messages] + _binary(b"".join(core))) == sorted(expected)


def _binary(stream: bytes) -> list[bytes]:
    from websockets.client import ClientProtocol
    from websockets.uri import parse_uri

    core = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN)
    if stream:
        core.receive_data(stream)
    return [bytes(event.data) for event in core.events_received() if event.opcode is Opcode.BINARY]


def test_the_rest_of_a_frame_may_look_like_a_frame():
    inner = sent(b"inner")
    whole = sent(b"outer" + inner)
    spotter = FrameSpotter()
    spotter.fed(memoryview(whole[: -len(inner)]))

    assert spotter.payload(memoryview(inner)) is None
    spotter.fed(memoryview(inner))
    assert spotter.payload(memoryview(sent(b"next"))) == b"next"


@pytest.mark.parametrize("size", SIZES)
def test_a_read_that_is_cut_short_or_too_long_is_not_a_whole_frame(size):
    whole = sent(bytes(size))
    for data in (*(whole[:-cut] for cut in (1, 2, 4, 6, 8) if cut < len(whole)), whole + b"\0", whole + bytes(8)):
        assert FrameSpotter().payload(memoryview(data)) is None


def test_a_length_in_more_bytes_than_it_needs_is_for_the_core():
    assert FrameSpotter().payload(memoryview(b"\x82\x7e\x00\x02ab")) is None


def test_frames_may_come_with_the_response():
    spotter = FrameSpotter()
    spotter.fed(memoryview(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + sent(b"metadata")), handshake=True)

    assert spotter.payload(memoryview(sent(b"action"))) is not None


def test_a_response_in_two_reads_leaves_everything_to_the_core():
    spotter = FrameSpotter()
    spotter.fed(memoryview(b"HTTP/1.1 101 Swit"), handshake=True)

    assert spotter.payload(memoryview(sent(b"action"))) is None


def test_fragments_leave_everything_to_the_core():
    spotter = FrameSpotter()
    spotter.fed(memoryview(sent(b"part", fin=False)))

    assert spotter.payload(memoryview(sent(b"whole"))) is None


@given(st.lists(st.integers(0, 300), min_size=1, max_size=5), st.integers(0, 3))
def test_a_message_in_pieces_is_the_same_message(sizes, start):
    """Bytes and arrays take turns, of every length and phase of the mask."""
    random = np.random.default_rng(sum(sizes))
    pieces = [random.bytes(start)]
    for size in sizes:
        pieces += [random.integers(0, 2**16, (size, 3), np.uint16), random.bytes(size % 7)]
    assert received(bytes(FrameWriter().write(pieces))) == b"".join(pieces)


def test_images_are_moved_once_from_the_message_into_the_buffer_that_is_sent():
    image = np.random.default_rng(0).integers(0, 256, (2, 240, 320, 3), np.uint8)
    observation = Observation(images={"a": image, "b": image}, states={"s": np.zeros((2, 3))}, text=["", ""])
    infer = Infer(observation, np.arange(2), np.zeros(2, np.int64))
    writer = FrameWriter()
    peaks = []
    for _ in range(2):
        connection = Connection(Role.CLIENT, now=0.0, timeouts=Timeouts(metadata=None))
        connection.receive(encode({"message_type": "metadata", "data": {}}), 0.0)
        tracemalloc.start()
        pieces = connection.send_pieces(infer, 0.0)
        frame = writer.write(pieces)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert sum(np.shares_memory(piece, image) for piece in pieces if isinstance(piece, np.ndarray)) == 2
    assert received(bytes(frame)) == encode(infer.to_wire())
    assert peaks[0] > 2 * image.nbytes, "the buffer"
    assert peaks[1] < image.nbytes / 4, "which is used again, and no other memory for an image"
