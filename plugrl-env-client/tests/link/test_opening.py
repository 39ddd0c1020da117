"""Opening a connection: phases, refusals, and what is never negotiated."""

import errno
import socket
import threading
import time

import pytest
from plugrl_env_client.link import opening
from plugrl_env_client.link.address import Address
from plugrl_env_client.link.interrupts import Interrupted, Interrupts
from plugrl_env_client.link.opening import ConnectError, open_transport, remaining


def open_to(port, *, host="127.0.0.1", timeout=10.0, api_key=None, interrupts=None):
    return open_transport(
        Address(host, port),
        api_key=api_key,
        max_frame=2**20,
        until=time.monotonic() + timeout,
        timeout=timeout,
        interrupts=interrupts or Interrupts(),
    )


@pytest.fixture
def silent():
    """A socket that listens and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_the_delay_of_small_packets_is_off(fake_server):
    server = fake_server(lambda peer: peer.greet())
    transport = open_to(server.port)
    assert transport._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    transport.drop()


def test_neither_compression_nor_a_proxy_is_used(fake_server, monkeypatch):
    """Lesson 14: both are what libraries do by themselves."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = fake_server(lambda peer: peer.greet())
    transport = open_to(server.port)
    transport.receive()
    assert "Sec-WebSocket-Extensions" not in server.peers[0].headers
    assert "Authorization" not in server.peers[0].headers
    transport.drop()


def test_the_key_is_sent_as_the_spec_says(fake_server):
    server = fake_server(lambda peer: peer.greet())
    transport = open_to(server.port, api_key="s3cret")
    transport.receive()
    assert server.peers[0].headers["Authorization"] == "Api-Key s3cret"
    transport.drop()


def test_a_name_is_looked_up_and_every_address_tried(fake_server):
    server = fake_server(lambda peer: peer.greet())  # listens on IPv4 only
    open_to(server.port, host="localhost").drop()


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_ipv6_is_spoken():
    try:
        listening = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with listening, pytest.raises(ConnectError, match="upgrading to WebSocket: no answer within"):
        open_to(listening.getsockname()[1], host="::1", timeout=0.1)


def test_lesson_6_the_error_names_the_phase_and_the_deadline(silent):
    began = time.monotonic()
    with pytest.raises(
        ConnectError, match=r"upgrading to WebSocket: no answer within the --connect-timeout of 0\.2 s"
    ) as caught:
        open_to(silent.getsockname()[1], timeout=0.2)
    assert time.monotonic() - began < 5
    assert not caught.value.final


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectError, match="connecting: connection refused"):
        open_to(port)


def test_no_such_host():
    with pytest.raises(ConnectError, match=r"looking up no-such-host\.invalid"):
        open_to(1, host="no-such-host.invalid")


@pytest.mark.parametrize(
    ("api_key", "says"), [(None, "the server wants an --api-key"), ("wrong", "does not take this --api-key")]
)
def test_http_401_is_final(fake_server, api_key, says):
    def refuse(connection, request):
        return connection.respond(401, "no")

    server = fake_server(lambda peer: None, process_request=refuse)
    with pytest.raises(ConnectError, match=says) as caught:
        open_to(server.port, api_key=api_key)
    assert caught.value.final


def test_http_503_is_not(fake_server):
    def refuse(connection, request):
        return connection.respond(503, "warming up")

    server = fake_server(lambda peer: None, process_request=refuse)
    with pytest.raises(ConnectError, match="the server answered HTTP 503 Service Unavailable") as caught:
        open_to(server.port)
    assert not caught.value.final


def test_something_that_is_no_websocket(silent):
    import threading

    def answer():
        peer, _ = silent.accept()
        with peer:
            peer.recv(4096)
            peer.sendall(b"220 mail.example ESMTP\r\n")

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(ConnectError, match="upgrading to WebSocket: the answer is not a WebSocket's"):
        open_to(silent.getsockname()[1])
    thread.join()


def test_a_deadline_that_has_passed_is_an_error():
    with pytest.raises(ConnectError, match="connecting: no answer within the --connect-timeout of 3 s"):
        remaining(time.monotonic() - 1, "connecting", 3.0)
    assert 0 < remaining(time.monotonic() + 5, "connecting", 5.0) <= 5


def test_whoever_is_connecting_to_nowhere_can_be_interrupted(monkeypatch):
    """In a thread, where no signal ends a wait."""
    monkeypatch.setattr(opening, "_NAP", 0.01)
    main, ended = Interrupts(), []

    def connect():
        with pytest.raises(Interrupted):
            open_to(9, host="192.0.2.1", timeout=60, interrupts=Interrupts(main))
        ended.append(True)

    monkeypatch.setattr(socket.socket, "connect_ex", lambda sock, where: errno.EINPROGRESS)
    monkeypatch.setattr(opening.select, "poll", NeverReady)
    thread = threading.Thread(target=connect)
    thread.start()
    main.request()
    thread.join(10)
    assert ended == [True]


class NeverReady:
    """The poll of a socket that nothing comes of."""

    def register(self, sock, event):
        pass

    def poll(self, milliseconds):
        return []


def test_an_address_that_does_not_answer_takes_its_part_of_the_deadline(monkeypatch):
    monkeypatch.setattr(socket.socket, "connect_ex", lambda sock, where: errno.EINPROGRESS)
    monkeypatch.setattr(opening.select, "poll", NeverReady)
    with pytest.raises(ConnectError, match=r"connecting: no answer within the --connect-timeout of 0\.05 s"):
        open_to(9, timeout=0.05)
