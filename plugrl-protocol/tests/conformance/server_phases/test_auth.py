"""Phase auth, against honest and broken servers."""

import pytest
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.conformance.server_phases.auth import auth


def test_a_server_with_the_key_passes(server, caller):
    calling = caller(server(key="secret"), api_key="secret")
    auth(calling)

    assert calling.report.has_passed("1.2 auth/api-key")


def test_a_server_that_does_not_ask(server, caller):
    with pytest.raises(ViolationError, match="no key: expected HTTP 401, the server has upgraded") as raised:
        auth(caller(server(), api_key="secret"))
    assert raised.value.clause == "1.2 auth/api-key"


def test_a_server_that_refuses_in_another_way(server, caller, monkeypatch):
    running = server(key="secret")
    monkeypatch.setattr(running, "_upgrade", lambda endpoint: False)

    with pytest.raises(ViolationError, match="no key: expected HTTP 401, got: no upgrade"):
        auth(caller(running, api_key="secret"))
