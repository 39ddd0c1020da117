"""The way in to a server."""

import socket
import threading

import pytest
from plugrl_protocol.conformance.peer.dialing import DialError, connect, dial, get
from plugrl_protocol.conformance.peer.trace import Trace


@pytest.fixture
def answering():
    """A server that answers every connection with the same bytes."""
    opened = []

    def listen(answer: bytes) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        opened.append(listener)

        def serve():
            sock, _ = listener.accept()
            with sock:
                sock.recv(4096)
                sock.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return listener.getsockname()[1]

    yield listen
    for listener in opened:
        listener.close()


def test_an_upgrade(server):
    running = server()
    endpoint = dial("127.0.0.1", running.port, Trace(), timeout=5.0)

    assert endpoint.receive(5.0)
    endpoint.drop()


def test_a_key_and_a_refusal(server):
    running = server(key="secret")
    dial("127.0.0.1", running.port, Trace(), timeout=5.0, authorization="Api-Key secret").drop()

    with pytest.raises(DialError, match="HTTP 401") as raised:
        dial("127.0.0.1", running.port, Trace(), timeout=5.0)
    assert raised.value.status == 401


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    with pytest.raises(DialError, match=f"cannot connect to 127.0.0.1 port {port}") as raised:
        dial("127.0.0.1", port, Trace(), timeout=1.0)
    assert raised.value.status is None
    assert get("127.0.0.1", port, "/", 1.0) is None


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
def test_something_else_listens(answering, answer):
    port = answering(answer)

    with pytest.raises(DialError, match="no upgrade to WebSocket"):
        dial("127.0.0.1", port, Trace(), timeout=5.0)


def test_a_server_that_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(DialError, match=r"no answer to the upgrade within 0\.1 s"):
            dial("127.0.0.1", port, Trace(), timeout=0.1)


def test_a_plain_get(server, answering):
    assert get("127.0.0.1", server().port, "/readyz", 5.0) == 200
    assert get("127.0.0.1", answering(b"no http\r\n\r\n"), "/readyz", 5.0) is None


def test_a_bare_connection(server):
    connect("127.0.0.1", server().port, 5.0).close()
