"""The connections of a phase."""

import pytest
from plugrl_protocol.conformance.calling.caller import KeyNeededError
from plugrl_protocol.conformance.peer.dialing import DialError
from plugrl_protocol.conformance.report import ViolationError


def test_calls_are_greeted_and_hung_up(server, caller):
    running = server()
    calling = caller(running)
    talk = calling.call("main")
    talk.exchange([0, 1])
    calling.connect_only()

    assert calling.features == {"reuse-feedback-obs", "declare-spaces"}
    assert calling.get("/readyz") == 200
    calling.hang_up()
    assert talk.endpoint.ended
    assert any("main" in line for line in calling.trace.lines())


def test_a_key_that_is_missing_is_the_users_to_give(server, caller):
    running = server(key="secret")

    with pytest.raises(KeyNeededError, match="--api-key"):
        caller(running).call("main")
    with pytest.raises(KeyNeededError):
        caller(running, api_key="other").call("main")
    caller(running, api_key="secret").call("main").exchange([0])


def test_a_server_that_is_gone(server, caller):
    running = server()
    calling = caller(running)
    running.close()

    with pytest.raises(DialError, match="cannot connect"):
        calling.call("main")


def test_a_server_that_does_not_greet(server, caller):
    running = server(change=lambda kind, wire: b"\xc1" if kind == "metadata" else wire)

    with pytest.raises(Exception, match="msgpack type 0xc1") as raised:
        caller(running).call("main")
    assert not isinstance(raised.value, ViolationError)
    assert raised.value.clause == "3 codec/msgpack"
