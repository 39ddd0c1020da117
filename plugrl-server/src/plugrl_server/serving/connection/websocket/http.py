"""What the port answers to HTTP: `/healthz`, `/readyz`, `/metrics`, or the upgrade to WebSocket (SPEC 1.2, 1.3)."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from plugrl_server.serving.connection.websocket.auth import is_authorized, unauthorized

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
GUIDE = "This is a PlugRL server: connect by WebSocket, or GET /healthz, /readyz or /metrics.\n"


class Front:
    """Decides what becomes of each HTTP request.

    Args:
        api_key: Key that upgrades and `/metrics` need, or None.
        readiness: Returns whether a client would be served, and why (not) in a word or two.
        metrics: Returns the metrics as Prometheus text.
    """

    def __init__(
        self, api_key: str | None, readiness: Callable[[], tuple[bool, str]], metrics: Callable[[], bytes]
    ) -> None:
        self._api_key = api_key
        self._readiness = readiness
        self._metrics = metrics

    def respond(self, protocol: ServerProtocol, request: Request) -> Response:
        """Return the response to a request: status 101 where it becomes a WebSocket connection."""
        if "Upgrade" in request.headers:
            allowed = is_authorized(request.headers, self._api_key)
            return protocol.accept(request) if allowed else unauthorized(protocol)
        path = request.path.partition("?")[0]
        if path not in ("/healthz", "/readyz", "/metrics"):
            return _text(protocol, HTTPStatus.UPGRADE_REQUIRED if path == "/" else HTTPStatus.NOT_FOUND, GUIDE)
        if getattr(request, "method", "GET") != "GET":  # older websockets let nothing else through, and do not say
            return _text(protocol, HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is answered here.\n")
        return self._probe(protocol, request, path)

    def _probe(self, protocol: ServerProtocol, request: Request, path: str) -> Response:
        if path == "/healthz":
            return _text(protocol, HTTPStatus.OK, "ok\n")
        if path == "/readyz":
            ready, state = self._readiness()
            return _text(protocol, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, f"{state}\n")
        if not is_authorized(request.headers, self._api_key):
            return unauthorized(protocol)
        return _text(protocol, HTTPStatus.OK, self._metrics().decode(), PROMETHEUS_TEXT)


def _text(protocol: ServerProtocol, status: HTTPStatus, body: str, content_type: str | None = None) -> Response:
    response = protocol.reject(
        status, body
    )  # named for handshakes; it builds any plain response that ends the connection
    if content_type is not None:
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = content_type
    if status is HTTPStatus.UPGRADE_REQUIRED:
        response.headers["Upgrade"] = "websocket"
    return response
