"""The blocking WebSocket shell, against `websockets`' own server and against raw sockets."""

import socket
import struct
import threading
import time

import pytest
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.link.transport import BROKEN, Closed, Event, Transport
from plugrl_protocol.closing import DONE, STOP, TOO_BIG, Close
from websockets.client import ClientProtocol
from websockets.protocol import State
from websockets.uri import parse_uri


def frame(opcode, payload=b"", *, fin=True):
    """A server's frame, written by hand."""
    head = bytes([(0x80 if fin else 0) | opcode])
    size = len(payload)
    if size < 126:
        return head + bytes([size]) + payload
    return head + (b"\x7e" + struct.pack("!H", size) if size < 65536 else b"\x7f" + struct.pack("!Q", size)) + payload


def closing(code, reason=""):
    return frame(8, struct.pack("!H", code) + reason.encode())


@pytest.fixture
def pair():
    """A transport whose handshake is over, and the raw socket at its other end."""
    ours, theirs = socket.socketpair()
    protocol = ClientProtocol(parse_uri("ws://x/"), state=State.OPEN, max_size=2**20)
    theirs.settimeout(10)
    with ours, theirs:
        yield Transport(ours, protocol, Interrupts()), theirs


def test_a_message_and_its_parts(pair):
    transport, peer = pair
    peer.sendall(frame(2, b"whole") + frame(2, b"in ", fin=False) + frame(0, b"two ", fin=False) + frame(0, b"parts"))
    assert transport.receive() == b"whole"
    assert transport.receive() == b"in two parts"


def test_nothing_is_a_message_before_the_handshake():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport = Transport(ours, ClientProtocol(parse_uri("ws://x/")), Interrupts())
        theirs.sendall(frame(2, b"too early"))
        assert transport.receive(0.0) is Event.NOTHING


def test_a_large_message(pair):
    transport, peer = pair
    payload = bytes(range(256)) * 3000
    thread = threading.Thread(target=peer.sendall, args=(frame(2, payload),))
    thread.start()
    assert transport.receive() == payload
    thread.join()


def test_a_large_message_leaves_in_full(pair):
    transport, peer = pair
    received = bytearray()

    def drain():
        while len(received) < 3_000_000:
            received.extend(peer.recv(1 << 16))

    thread = threading.Thread(target=drain)
    thread.start()
    transport.send(bytes(3_000_000))
    thread.join()
    assert len(received) == 3_000_000 + 14


def test_who_cannot_send_waits_for_the_server():
    ours, theirs = socket.socketpair()
    interrupts, seen = Interrupts(), []
    with ours, theirs:
        transport = Transport(ours, ClientProtocol(parse_uri("ws://x/"), state=State.OPEN), interrupts)

        def wait(event, seconds):
            seen.append(interrupts.is_waiting)
            return bool(theirs.recv(1 << 20))

        transport._wait = wait
        transport.send(bytes(3_000_000))
    assert set(seen) == {True}
    assert not interrupts.is_waiting


def test_a_spinning_transport_receives_too():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        protocol = ClientProtocol(parse_uri("ws://x/"), state=State.OPEN)
        transport = Transport(ours, protocol, Interrupts(), spin=5.0)
        thread = threading.Timer(0.01, theirs.sendall, (frame(2, b"soon"),))
        thread.start()
        assert transport.receive() == b"soon"
        thread.join()


def test_nothing_in_time(pair):
    transport, _ = pair
    assert transport.receive(0.01) is Event.NOTHING


def test_a_wait_of_no_time_ends_and_loses_nothing(pair):
    transport, peer = pair
    assert transport.receive(0.0) is Event.NOTHING
    peer.sendall(frame(2, b"late"))
    assert transport.receive(0.0) == b"late"


def test_text_and_pong_are_told_apart(pair):
    transport, peer = pair
    peer.sendall(frame(1, b"hello") + frame(10))
    assert transport.receive() is Event.TEXT
    assert transport.receive() is Event.PONG


def test_a_ping_is_answered_while_waiting_and_between_steps(pair):
    transport, peer = pair
    peer.sendall(frame(9, b"one"))
    assert transport.receive(0.05) is Event.NOTHING
    assert peer.recv(100)[0] == 0x8A
    peer.sendall(frame(9, b"two"))
    transport.poll()
    assert peer.recv(100)[0] == 0x8A


def test_a_poll_of_nothing_does_nothing(pair):
    transport, peer = pair
    transport.poll()
    peer.sendall(frame(2, b"kept for later"))
    transport.poll()
    assert transport.receive() == b"kept for later"


@pytest.mark.parametrize("notice", ["receive", "poll"])
def test_a_close_frame_is_answered_and_told(pair, notice):
    transport, peer = pair
    peer.sendall(closing(STOP.code, STOP.reason))
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(Closed) as caught:
        getattr(transport, notice)()
    assert (caught.value.close, caught.value.clean) == (STOP, True)
    answer = peer.recv(100)
    assert answer[0] == 0x88


def test_messages_before_a_close_frame_come_first(pair):
    transport, peer = pair
    peer.sendall(frame(2, b"last words") + closing(1000))
    peer.shutdown(socket.SHUT_WR)
    assert transport.receive() == b"last words"
    with pytest.raises(Closed) as caught:
        transport.receive()
    assert caught.value.close == DONE


def test_a_connection_that_breaks_is_1006(pair):
    transport, peer = pair
    peer.close()
    with pytest.raises(Closed) as caught:
        transport.receive()
    assert (caught.value.close, caught.value.clean) == (BROKEN, False)


def test_a_send_into_a_broken_connection_is_told_why_it_broke(pair):
    transport, peer = pair
    peer.sendall(closing(1011, "Internal server error."))
    peer.close()
    with pytest.raises(Closed) as caught:
        transport.send(bytes(10 << 20))
    assert (caught.value.close, caught.value.clean) == (Close(1011, "Internal server error."), False)


def test_a_frame_over_the_cap_ends_the_connection_with_1009(pair):
    transport, peer = pair
    peer.sendall(frame(2, bytes(2**20 + 1))[:100])
    with pytest.raises(Closed, match="over the size cap") as caught:
        transport.receive()
    assert caught.value.close == TOO_BIG
    assert peer.recv(100)[0] == 0x88


def test_a_broken_stream_ends_the_connection(pair):
    transport, peer = pair
    peer.sendall(b"\xff\xff")
    with pytest.raises(Closed, match="connection lost") as caught:
        transport.receive()
    assert caught.value.close.code == 1002


def test_our_own_close_waits_for_the_answer(pair):
    transport, peer = pair

    def answer():
        assert peer.recv(100)[0] == 0x88
        peer.sendall(frame(2, b"crossed") + closing(1000))
        peer.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=answer)
    thread.start()
    assert transport.close(DONE)
    thread.join()


def test_our_own_close_of_a_broken_connection_is_not_clean(pair):
    transport, peer = pair
    peer.close()
    assert not transport.close(DONE)
    assert not transport.close(DONE)


def test_a_close_frame_that_lay_here_for_long_confirms_nothing(pair):
    """Its sender may have stopped reading before our last message; then nobody has read that."""
    transport, peer = pair
    peer.sendall(closing(STOP.code, STOP.reason))
    peer.shutdown(socket.SHUT_WR)
    transport._empty_at = time.monotonic() - 60
    with pytest.raises(Closed) as caught:
        transport.receive()
    assert (caught.value.close, caught.value.clean) == (STOP, False)


def test_a_close_frame_that_came_with_a_message_stops_the_next_send(pair):
    transport, peer = pair
    peer.sendall(frame(2, b"metadata") + closing(STOP.code, STOP.reason))
    peer.shutdown(socket.SHUT_WR)
    assert transport.receive() == b"metadata"
    assert peer.recv(100)[0] == 0x88
    with pytest.raises(Closed) as caught:
        transport.send(b"infer")
    assert (caught.value.close, caught.value.clean) == (STOP, True)


def test_a_close_frame_that_came_with_a_message_completes_our_own_close(pair):
    transport, peer = pair
    peer.sendall(frame(2, b"metadata") + closing(STOP.code, STOP.reason))
    peer.shutdown(socket.SHUT_WR)
    assert transport.receive() == b"metadata"
    assert transport.close(DONE)
