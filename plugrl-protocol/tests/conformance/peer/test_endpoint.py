"""One end of a connection, against another one, and against bytes that are no WebSocket."""

import socket

import pytest
from plugrl_protocol.closing import Close
from plugrl_protocol.conformance.peer.endpoint import Closed, Endpoint, Text
from plugrl_protocol.conformance.peer.trace import Trace
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol


@pytest.fixture
def raw():
    """An end of ours, and the bare socket of its peer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    endpoint = Endpoint(ours, ServerProtocol(state=State.OPEN, max_size=1000), Trace(), us="checker", peer="client")
    yield endpoint, theirs
    endpoint.drop()
    theirs.close()


def masked(opcode: Opcode, data: bytes, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=True)


def test_binary_messages_arrive_in_order(ends):
    server, client = ends()
    client.send(b"one")
    client.send(b"two")

    assert server.receive(1.0) == b"one"
    assert server.receive(1.0) == b"two"
    assert server.receive(0.01) is None


def test_text_is_told_apart(ends):
    server, client = ends()
    server.send_text("hello")

    assert client.receive(1.0) == Text(b"hello")


def test_fragments_make_one_message(raw):
    endpoint, theirs = raw
    theirs.sendall(masked(Opcode.BINARY, b"a", fin=False) + masked(Opcode.PING, b"") + masked(Opcode.CONT, b"b"))
    theirs.sendall(masked(Opcode.TEXT, b"c", fin=False) + masked(Opcode.CONT, b"\xff"))

    assert endpoint.receive(1.0) == b"ab"
    assert endpoint.receive(1.0) == Text(b"c\xff")


def test_pings_are_answered_and_counted(ends):
    server, client = ends()
    server.ping()
    assert client.receive(0.05) is None
    assert server.receive(0.05) is None

    assert server.pongs == 1


def test_a_close_says_how(ends):
    server, client = ends()
    client.send(b"last")
    client.close(Close(1000))

    assert server.receive(1.0) == b"last"
    assert server.receive(1.0) == Closed(Close(1000))
    assert server.receive(1.0) == Closed(Close(1000)), "it stays closed"
    assert client.finish(1.0) == Closed(Close(1000))


def test_messages_that_cross_our_close_are_thrown_away_by_finish(ends):
    server, client = ends()
    client.send(b"crossing")
    server.close(Close(1001, "plugrl-server-stop"))

    assert client.receive(1.0) == Closed(Close(1001, "plugrl-server-stop"))
    assert server.finish(1.0) == Closed(Close(1001, "plugrl-server-stop"))


def test_a_connection_that_breaks(raw):
    endpoint, theirs = raw
    theirs.close()

    assert endpoint.receive(1.0) == Closed(Close(1006, "no close frame"))
    assert endpoint.ended
    endpoint.send(b"into the void")
    endpoint.ping()
    endpoint.close(Close(1000))


def test_finish_is_bounded(raw):
    endpoint, _ = raw
    endpoint.close(Close(1000))

    assert endpoint.finish(0.05) is None


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\x82\x01a", "ProtocolError"),  # not masked
        (b"\x83\x80\x00\x00\x00\x00", "ProtocolError"),  # an opcode that does not exist
        (masked(Opcode.CONT, b"of nothing"), "ProtocolError"),
        (masked(Opcode.BINARY, bytes(1001)), "PayloadTooBig"),
    ],
    ids=["unmasked", "opcode", "continuation", "size"],  # masks are random, and ids must not be
)
def test_bytes_against_rfc_6455_are_a_fault_of_the_peer(raw, data, fault):
    endpoint, theirs = raw
    theirs.sendall(data)
    closed = endpoint.receive(1.0)

    assert isinstance(closed, Closed)
    assert closed.fault is not None
    assert closed.fault.startswith(fault)


def test_a_slow_drip_does_not_outlast_the_timeout(raw):
    endpoint, theirs = raw
    theirs.sendall(masked(Opcode.BINARY, bytes(500))[:400])

    assert endpoint.receive(0.05) is None
