"""SPEC 1.3: plain GETs on the same port."""

import pytest
from plugrl_server.serving.connection.websocket.http import Front
from websockets.datastructures import Headers
from websockets.http11 import Request
from websockets.server import ServerProtocol

UPGRADE = {
    "Host": "here",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Extensions": "permessage-deflate",
}


def answer(path, headers=None, *, key=None, ready=(True, "ready"), method="GET"):
    front = Front(key, lambda: ready, lambda: b"plugrl_connections 1\n")
    request = Request(path, Headers(headers or {}))
    if hasattr(request, "method"):  # websockets 17 and later
        request.method = method
    return front.respond(ServerProtocol(extensions=None), request)


def test_healthz_tells_that_the_process_lives():
    response = answer("/healthz")
    assert (response.status_code, response.body) == (200, b"ok\n")
    assert answer("/healthz?verbose=1").status_code == 200


@pytest.mark.parametrize(
    ("ready", "status"),
    [
        ((True, "ready"), 200),
        ((True, "waiting-for-client"), 200),
        ((False, "building"), 503),
        ((False, "stopping"), 503),
    ],
)
def test_readyz_tells_whether_a_client_would_be_served(ready, status):
    response = answer("/readyz", ready=ready)
    assert (response.status_code, response.body.decode()) == (status, f"{ready[1]}\n")


def test_metrics_are_prometheus_text():
    response = answer("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"plugrl_connections 1" in response.body


def test_metrics_need_the_key_and_the_probes_do_not():
    assert answer("/metrics", key="secret").status_code == 401
    assert answer("/metrics", {"Authorization": "Api-Key secret"}, key="secret").status_code == 200
    assert answer("/healthz", key="secret").status_code == 200
    assert answer("/readyz", key="secret").status_code == 200


def test_an_upgrade_is_accepted_without_compression():
    """SPEC 1.1: permessage-deflate is never negotiated."""
    response = answer("/", UPGRADE)
    assert response.status_code == 101
    assert "Sec-WebSocket-Extensions" not in response.headers


def test_an_upgrade_without_the_key_gets_401_and_no_upgrade():
    assert answer("/", UPGRADE, key="secret").status_code == 401
    assert answer("/", {**UPGRADE, "Authorization": "Api-Key secret"}, key="secret").status_code == 101


def test_other_requests_are_told_what_there_is():
    for path, status in (("/", 426), ("/favicon.ico", 404)):
        response = answer(path)
        assert response.status_code == status
        assert b"/healthz" in response.body


def test_other_methods_are_refused():
    response = answer("/healthz", method="POST")
    assert response.status_code in (200, 405)  # websockets below 17 refuses them before we are asked
