"""API keys: `Authorization: Api-Key <key>` on the handshake (SPEC 1.2)."""

from __future__ import annotations

import hmac
from http import HTTPStatus

from websockets.datastructures import Headers
from websockets.http11 import Response
from websockets.server import ServerProtocol

SCHEME = "Api-Key"


def is_authorized(headers: Headers, api_key: str | None) -> bool:
    """Return whether a request carries the server's key, in time that does not depend on where they differ.

    Args:
        headers: The request's headers.
        api_key: The server's key; without one every request is welcome, whatever it carries.
    """
    if api_key is None:
        return True
    values = headers.get_all("Authorization")
    scheme, _, key = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    same = hmac.compare_digest(key.strip().encode("utf-8", "surrogateescape"), api_key.encode())
    return same and scheme.lower() == SCHEME.lower()


def unauthorized(protocol: ServerProtocol) -> Response:
    """Return the 401 that a request without the key gets in place of an upgrade."""
    response = protocol.reject(
        HTTPStatus.UNAUTHORIZED, f"This server needs an API key: send `Authorization: {SCHEME} <key>`.\n"
    )
    response.headers["WWW-Authenticate"] = SCHEME
    return response
