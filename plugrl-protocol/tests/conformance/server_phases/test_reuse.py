"""Phase reuse, against honest and broken servers."""

import pytest
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.conformance.server_phases.reuse import reuse


def broken(calling) -> tuple[str, str]:
    with pytest.raises(ViolationError) as raised:
        reuse(calling)
    return raised.value.clause, raised.value.detail


def test_an_honest_server_passes(server, caller):
    calling = caller(server())
    reuse(calling)

    assert calling.report.has_passed("10.1 reuse/answered")
    assert calling.report.has_passed("10.1 reuse/held")


def test_a_server_that_cannot(server, caller):
    running = server()
    running.features = []

    clause, detail = broken(caller(running))
    assert clause == "10.1 reuse/answered"
    assert "[True, False]" in detail


def test_a_server_that_makes_something_up(server, caller, monkeypatch):
    running = server()
    running.judge = lambda error: None

    clause, detail = broken(caller(running, timeout=0.3))
    assert clause == "10.1 reuse/held"
    assert detail.startswith("a reuse without any feedback")
