"""Phase errors, against honest and broken servers (lessons 2 and 5)."""

import pytest
from plugrl_protocol.closing import STOP, Close
from plugrl_protocol.conformance.calling.talk import RunOverError
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.conformance.server_phases.errors import errors


def broken(calling) -> tuple[str, str]:
    with pytest.raises(ViolationError) as raised:
        errors(calling)
    return raised.value.clause, raised.value.detail


def test_an_honest_server_passes(server, caller):
    calling = caller(server())
    errors(calling)

    for clause in ("7.2 closing/resync", "7.2 closing/isolation", "5.4 feedback/info", "7.4 closing/text-frame"):
        assert calling.report.has_passed(clause)


def test_a_server_that_goes_on(server, caller):
    running = server()
    running.judge = lambda error: None

    clause, detail = broken(caller(running, timeout=0.3))
    assert clause == "7.2 closing/resync"
    assert detail.startswith(
        "an infer without env_indices: expected the server to close with 1001 plugrl-server-resync"
    )
    assert detail.endswith("it has done nothing within 0.3 s")


def test_a_server_that_closes_in_another_way(server, caller):
    running = server()
    running.judge = lambda error: Close(1002, error.detail)

    assert broken(caller(running))[0] == "7.2 closing/resync"


def test_a_server_that_falls_over_an_info(server, caller):
    running = server()
    running.judge = lambda error: Close(1011, "Internal server error.") if "info" in error.clause else error.close

    clause, detail = broken(caller(running))
    assert clause == "5.4 feedback/info"
    assert "it closed with 1011 Internal server error." in detail


def test_a_server_that_ignores_text(server, caller):
    running = server()
    running.judge = lambda error: None if "text" in error.clause else error.close

    assert broken(caller(running, timeout=0.3))[0] == "7.4 closing/text-frame"


def test_a_server_that_closes_everybody(server, caller):
    running = server()

    def close_all(error):
        running.over, running.stop_close = True, Close(1011, "Internal server error.")
        return error.close

    running.judge = close_all
    clause, detail = broken(caller(running))

    assert clause == "7.2 closing/isolation"
    assert "an infer without env_indices" in detail


def test_a_server_that_stops_listening(server, caller):
    running = server()

    def stop_listening(error):
        running.stop_listening()
        return error.close

    running.judge = stop_listening
    clause, detail = broken(caller(running))

    assert clause == "7.2 closing/isolation"
    assert "expected the next connection to work" in detail


def test_a_run_that_ends_meanwhile(server, caller):
    running = server(stop_after=20)

    with pytest.raises(RunOverError):
        errors(caller(running))
    assert running.stop_close == STOP


def test_other_faults_keep_their_own_clause(server, caller):
    def no_ids(kind, wire):
        if kind == "action":
            del wire["data"]["env_ids"]
        return wire

    assert broken(caller(server(change=no_ids)))[0] == "4.3 action/env-ids"
