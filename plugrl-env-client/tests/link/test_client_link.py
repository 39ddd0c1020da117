"""One connection: greeting, exchanges, deadlines, accounting."""

import logging
import socket
import threading
import time

import numpy as np
import pytest
from plugrl_env_client.link.address import Address
from plugrl_env_client.link.client_link import Link
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.link.opening import ConnectError
from plugrl_env_client.link.transport import Closed
from plugrl_protocol.closing import ACTION_TIMEOUT, DONE, RESYNC, STOP, TEXT_FRAME
from plugrl_protocol.codec import encode
from plugrl_protocol.errors import LocalProtocolError
from plugrl_protocol.messages import Feedback, Infer
from plugrl_protocol.observation import Observation


def observation(n):
    return Observation(images={}, states={"s": np.zeros((n, 2))}, text=[""] * n)


def infer(n=1):
    return Infer(observation(n), np.arange(n), np.zeros(n, np.int64))


def feedback(n=1):
    no = np.zeros(n, bool)
    return Feedback(np.arange(n), np.zeros(n, np.int64), observation(n), np.zeros(n, np.float32), no, no, {})


@pytest.fixture
def connect():
    links = []

    def open_link(port, **options):
        settings = {"connect_timeout": 10.0, "action_timeout": None, "max_frame": 2**20, "api_key": None}
        link = Link.open(Address("127.0.0.1", port), **{**settings, **options}, interrupts=Interrupts())
        links.append(link)
        return link

    yield open_link
    for link in links:
        link.close()


def test_an_exchange(fake_server, actions, connect):
    def script(peer):
        peer.greet(features=["declare-spaces"])
        peer.serve(actions(4, 7), exchanges=2)

    server = fake_server(script)
    link = connect(server.port)
    assert link.features == {"declare-spaces"}
    assert link.infer(infer(3)).action.shape == (4, 3, 7)
    link.feedback(feedback(3))
    assert (link.feedback_rows, link.unconfirmed_rows, link.exchanges) == (3, 3, 1)
    link.infer(infer(2))
    assert (link.feedback_rows, link.unconfirmed_rows) == (3, 0)
    link.feedback(feedback(2))
    assert (link.feedback_rows, link.unconfirmed_rows, link.exchanges) == (5, 2, 2)
    link.close()
    assert link.unconfirmed_rows == 0
    server.wait()
    assert server.feedback_rows == 5
    assert link.waited > 0


def test_an_exchange_never_takes_the_time_of_a_delayed_acknowledgement(fake_server, actions, connect):
    """A feedback has no reply: with Nagle's algorithm on, each exchange takes 40 ms and more."""

    def script(peer):
        peer.greet()
        peer.serve(actions(1), exchanges=50)

    link = connect(fake_server(script).port)
    took = []
    for _ in range(50):
        began = time.monotonic()
        link.infer(infer())
        link.feedback(feedback())
        took.append(time.monotonic() - began)
    assert sorted(took)[25] < 0.03


def test_metadata_needs_no_key_and_unknown_ones_are_ignored(fake_server, connect):
    link = connect(fake_server(lambda peer: peer.greet(surprise={"a": [1, 2]})).port)
    assert link.features == frozenset()


def test_metadata_may_be_large_and_late(fake_server, connect):
    def script(peer):
        threading.Event().wait(0.05)
        peer.greet(filler="x" * 1_100_000)

    assert connect(fake_server(script).port, max_frame=2**22).metadata.data["filler"]


def test_a_newer_protocol_version_is_warned_of(fake_server, connect, caplog):
    with caplog.at_level(logging.WARNING):
        connect(fake_server(lambda peer: peer.greet(protocol_version=2)).port)
    assert "the server speaks protocol version 2, this client 1: going on" in caplog.text


def test_lesson_6_the_deadline_covers_the_metadata(fake_server, connect):
    server = fake_server(lambda peer: peer.socket.recv(timeout=5))
    with pytest.raises(
        ConnectError, match=r"waiting for the metadata: no answer within the --connect-timeout of 0\.2 s"
    ):
        connect(server.port, connect_timeout=0.2)


def test_a_stop_before_the_metadata_is_told(fake_server, connect):
    with pytest.raises(Closed) as caught:
        connect(fake_server(lambda peer: peer.stop()).port)
    assert caught.value.close == STOP


@pytest.mark.parametrize("when", ["metadata", "action"])
def test_a_text_frame_is_fatal_and_nothing_more_is_sent(fake_server, connect, when):
    after = []

    def script(peer):
        if when == "action":
            peer.greet()
            peer.infer()
        peer.socket.send("hello")
        try:
            after.append(peer.socket.recv(timeout=5))
        finally:
            after.append(peer.closed_with[0])

    server = fake_server(script)
    with pytest.raises(Closed, match="expected binary, got text") as caught:
        connect(server.port).infer(infer())
    assert caught.value.close == TEXT_FRAME
    server.wait()
    assert after == [1003]


def test_a_reply_that_breaks_the_protocol_is_named_with_its_clause(fake_server, actions, connect):
    def script(peer):
        peer.greet()
        peer.infer()
        peer.send({"message_type": "action", "data": {"action": np.zeros((4, 2, 7)), "env_ids": np.arange(2)}})
        with pytest.raises(Exception, match="1002"):
            peer.feedback()

    link = connect(fake_server(script).port)
    with pytest.raises(Closed, match=r"the server broke the protocol: .*expected 1 env.*\(SPEC 5\.3"):
        link.infer(infer())


def test_an_action_without_env_ids_is_taken_in_our_own_order(fake_server, connect):
    def script(peer):
        peer.greet()
        peer.infer()
        peer.send({"message_type": "action", "data": {"action": np.arange(3.0).reshape(1, 3)}})

    assert connect(fake_server(script).port).infer(infer(3)).action.tolist() == [[0.0, 1.0, 2.0]]


def test_lesson_13_an_action_that_does_not_come_ends_the_connection(fake_server, connect):
    def script(peer):
        peer.greet()
        peer.infer()
        with pytest.raises(Exception, match="Action timeout"):
            peer.infer()

    link = connect(fake_server(script).port, action_timeout=0.1)
    began = time.monotonic()
    with pytest.raises(Closed, match=r"no action within 0\.1 s") as caught:
        link.infer(infer())
    assert caught.value.close == ACTION_TIMEOUT
    assert time.monotonic() - began < 5


def test_a_dead_peer_is_noticed_by_ping(monkeypatch):
    """The kernel of a host that is gone answers nothing; here a socket that is never read from again."""
    import plugrl_env_client.link.client_link as module
    from plugrl_protocol.connection import Timeouts

    monkeypatch.setattr(
        module,
        "Timeouts",
        lambda **given: Timeouts(**{**given, "ping_interval": 0.05, "ping_timeout": 0.1}),
    )
    monkeypatch.setattr("plugrl_env_client.link.client_link._PATIENCE", 0.02)
    monkeypatch.setattr("plugrl_env_client.link.transport.ANSWER_SECONDS", 0.05)
    from plugrl_protocol.codec import encode
    from websockets.server import ServerProtocol

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet():
            peer, _ = listening.accept()
            protocol = ServerProtocol()
            protocol.receive_data(peer.recv(4096))
            (request,) = protocol.events_received()
            protocol.send_response(protocol.accept(request))
            protocol.send_binary(encode({"message_type": "metadata", "data": {}}))
            peer.sendall(b"".join(protocol.data_to_send()))
            held.append(peer)

        held = []
        thread = threading.Thread(target=greet)
        thread.start()
        port = listening.getsockname()[1]
        link = Link.open(
            Address("127.0.0.1", port),
            connect_timeout=5,
            action_timeout=None,
            max_frame=2**20,
            api_key=None,
            interrupts=Interrupts(),
        )
        thread.join()
        with pytest.raises(Closed, match=r"no answer to .*ping"):
            link.infer(infer())
        held[0].close()


def test_an_answer_that_was_not_waited_for_comes_later(fake_server, actions, connect):
    asked_twice = threading.Event()

    def script(peer):
        peer.greet()
        peer.infer()
        assert asked_twice.wait(10)
        peer.act(np.full((1, 1, 2), 7.0))
        peer.feedback()
        peer.serve(actions(1, 2))

    link = connect(fake_server(script).port)
    link.ask(infer())
    assert link.answer(0.0) is None
    assert link.answer(0.001) is None
    assert link.waited == 0.0
    with pytest.raises(LocalProtocolError):
        link.ask(infer())  # one at a time
    asked_twice.set()
    assert link.answer().action.tolist() == [[[7.0, 7.0]]]
    assert link.waited > 0.001
    link.feedback(feedback())
    assert link.infer(infer()).action.shape == (1, 1, 2)


def test_a_close_is_noticed_while_an_answer_is_waited_for_a_little(fake_server, connect):
    def script(peer):
        peer.greet()
        peer.infer()
        peer.stop()

    link = connect(fake_server(script).port)
    link.ask(infer())
    with pytest.raises(Closed) as over:
        link.answer(10.0)
    assert over.value.close == STOP


@pytest.mark.parametrize("close", [STOP, RESYNC])
def test_a_closing_handshake_confirms_the_feedback_before_it(fake_server, actions, connect, close):
    def script(peer):
        peer.greet()
        peer.serve(actions(1), exchanges=1)
        peer.close(close.code, close.reason)

    server = fake_server(script)
    link = connect(server.port)
    link.infer(infer(4))
    link.feedback(feedback(4))
    with pytest.raises(Closed) as caught:
        link.infer(infer(4))
    assert (caught.value.close, caught.value.clean) == (close, True)
    assert (link.feedback_rows, link.unconfirmed_rows) == (4, 0)


def test_feedback_that_a_close_forestalls_is_not_counted_as_sent(fake_server, actions, connect):
    """The close frame is read together with the action: what became of it can no longer be told."""

    def script(peer):
        peer.greet()
        message = peer.infer()
        data = {"env_ids": message["env_indices"], "action": actions(1)(message)}
        action = encode({"message_type": "action", "data": data})
        reason = STOP.code.to_bytes(2, "big") + STOP.reason.encode()
        frames = b"\x82\x7e" + len(action).to_bytes(2, "big") + action + bytes([0x88, len(reason)]) + reason
        peer.socket.socket.sendall(frames)
        with pytest.raises(Exception, match="1001"):
            peer.feedback()

    server = fake_server(script)
    link = connect(server.port)
    link.infer(infer(4))
    with pytest.raises(Closed) as caught:
        link.feedback(feedback(4))
    server.wait()
    assert (caught.value.close, caught.value.clean) == (STOP, True)
    assert (link.feedback_rows, link.unconfirmed_rows) == (0, 0)


def test_a_cut_leaves_at_most_one_message_unconfirmed(fake_server, actions, connect):
    def script(peer):
        peer.greet()
        peer.serve(actions(1), exchanges=2)
        peer.drop()

    link = connect(fake_server(script).port)
    for rows in (4, 3):
        link.infer(infer(rows))
        link.feedback(feedback(rows))
    with pytest.raises(Closed):
        link.infer(infer(4))
    assert (link.feedback_rows, link.unconfirmed_rows) == (7, 3)


def test_a_poll_between_steps_notices_the_close(fake_server, connect, monkeypatch):
    gone = threading.Event()

    def script(peer):
        peer.greet()
        reason = STOP.reason.encode()
        peer.socket.socket.sendall(bytes([0x88, 2 + len(reason)]) + STOP.code.to_bytes(2, "big") + reason)
        gone.set()
        with pytest.raises(Exception, match="1001"):
            peer.infer()

    link = connect(fake_server(script).port)
    assert gone.wait(5)
    link.poll()  # too soon after the last look: nothing is read
    monkeypatch.setattr("plugrl_env_client.link.client_link._POLL_SECONDS", 0.0)

    def poll_until_closed():
        until = time.monotonic() + 5
        while time.monotonic() < until:
            link.poll()

    with pytest.raises(Closed) as caught:
        poll_until_closed()
    assert caught.value.close == STOP


def test_our_own_mistakes_are_not_sent(fake_server, connect):
    link = connect(fake_server(lambda peer: peer.greet()).port)
    with pytest.raises(LocalProtocolError, match="expected infer"):
        link.feedback(feedback())
    assert link.feedback_rows == 0


def test_a_finished_client_says_so(fake_server, connect):
    codes = []

    def script(peer):
        peer.greet()
        try:
            peer.infer()
        finally:
            codes.append(peer.closed_with[0])

    server = fake_server(script)
    connect(server.port).close(DONE)
    server.wait()
    assert codes == [1000]


def test_a_feedback_leaves_at_once(fake_server, actions, connect):
    came = threading.Event()

    def script(peer):
        peer.greet()
        peer.serve(actions(1, 1), exchanges=1)
        came.set()

    link = connect(fake_server(script).port)
    link.infer(infer())
    link.feedback(feedback())
    assert came.wait(10)
