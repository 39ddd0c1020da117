"""The listening socket: upgrades, plain GETs, and whatever else connects."""

import http.client
import socket
import threading

import pytest
from plugrl_protocol.conformance.peer.dialing import dial
from plugrl_protocol.conformance.peer.listener import Guest, Listener
from plugrl_protocol.conformance.peer.trace import Trace


@pytest.fixture
def listener():
    made = Listener("127.0.0.1", 0)
    yield made
    made.close()


def met(listener: Listener, visit) -> Guest | None:
    """Who is met while `visit(port)` runs elsewhere."""
    thread = threading.Thread(target=visit, args=(listener.port,), daemon=True)
    thread.start()
    for _ in range(40):
        guest = listener.look(Trace())
        if guest is not None or not thread.is_alive():
            break
    thread.join(5.0)
    return guest


def test_a_client_is_upgraded_and_its_offers_are_known(listener):
    def visit(port):
        dial("127.0.0.1", port, Trace(), timeout=5.0, compression=True).drop()

    guest = met(listener, visit)

    assert guest is not None
    assert guest.fault is None
    assert "permessage-deflate" in guest.extensions
    assert guest.endpoint.protocol.extensions == []
    guest.endpoint.drop()


def test_nobody_comes(listener):
    assert listener.look(Trace()) is None


def test_somebody_who_only_tries_the_port_is_no_client(listener):
    assert met(listener, lambda port: socket.create_connection(("127.0.0.1", port)).close()) is None


def test_health_checks_are_answered(listener):
    answers = []

    def visit(port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
        connection.request("GET", "/readyz")
        answers.append(connection.getresponse().status)
        connection.close()

    assert met(listener, visit) is None
    assert answers == [200]


@pytest.mark.parametrize(
    "request_text",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01 this is TLS\r\n\r\n", b"PUT / HTTP/1.1\r\n\r\n"],
)
def test_a_handshake_that_is_none_is_a_fault(listener, request_text):
    def visit(port):
        with socket.create_connection(("127.0.0.1", port), 5.0) as sock:
            sock.sendall(request_text)
            sock.recv(1000)

    guest = met(listener, visit)

    assert guest is not None
    assert guest.fault


def test_a_client_that_says_nothing_is_given_up(listener, monkeypatch):
    monkeypatch.setattr("plugrl_protocol.conformance.peer.listener._HANDSHAKE_SECONDS", 0.1)
    done = threading.Event()

    def visit(port):
        with socket.create_connection(("127.0.0.1", port), 5.0):
            done.wait(5.0)

    thread = threading.Thread(target=visit, args=(listener.port,), daemon=True)
    thread.start()
    guest = None
    while guest is None:
        guest = listener.look(Trace())
    done.set()
    thread.join(5.0)

    assert guest.fault == "no request within 0.1 s of connecting"


def test_a_port_in_use_is_an_os_error(listener):
    with pytest.raises(OSError, match="in use"):
        Listener("127.0.0.1", listener.port)
