"""SPEC 1.2: a key is asked for before the upgrade, and nowhere else."""

import hmac

import pytest
from plugrl_server.serving.connection.websocket import auth
from plugrl_server.serving.connection.websocket.auth import is_authorized, unauthorized
from websockets.datastructures import Headers
from websockets.server import ServerProtocol


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("Api-Key s3cret", True),
        ("api-key s3cret", True),
        ("Api-Key s3cre", False),
        ("Api-Key s3cret2", False),
        ("Api-Key", False),
        ("Bearer s3cret", False),
        ("s3cret", False),
        ("", False),
        ("Api-Key s\xe9cret", False),
    ],
)
def test_the_key_must_be_the_servers(header, allowed):
    assert is_authorized(Headers({"Authorization": header}), "s3cret") is allowed


def test_no_header_or_two_of_them_are_not_a_key():
    twice = Headers()
    twice["Authorization"] = "Api-Key s3cret"
    twice["Authorization"] = "Api-Key s3cret"
    assert not is_authorized(Headers(), "s3cret")
    assert not is_authorized(twice, "s3cret")


def test_a_server_without_a_key_ignores_the_header():
    assert is_authorized(Headers({"Authorization": "Api-Key whatever"}), None)
    assert is_authorized(Headers(), None)


def test_the_comparison_takes_constant_time(monkeypatch):
    compared, compare_digest = [], hmac.compare_digest

    def compare(a, b):
        compared.append((a, b))
        return compare_digest(a, b)

    monkeypatch.setattr(auth.hmac, "compare_digest", compare)
    for header in ("Api-Key right", "Api-Key wrong", "Bearer right"):
        is_authorized(Headers({"Authorization": header}), "right")
    assert len(compared) == 3


def test_the_refusal_says_what_to_send():
    response = unauthorized(ServerProtocol())
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Api-Key"
    assert b"Authorization: Api-Key" in response.body
