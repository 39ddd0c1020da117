"""Phase stop, against honest and broken servers."""

import pytest
from plugrl_protocol.closing import Close
from plugrl_protocol.conformance.calling.talk import RunOverError
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.conformance.server_phases.stop import stop


def test_the_end_of_a_run(server, caller):
    calling = caller(server(stop_after=10))

    with pytest.raises(RunOverError):
        stop(calling)
    assert calling.report.has_passed("7.1 closing/stop")
    assert calling.report.exchanges == 10


def test_another_reason(server, caller):
    running = server(stop_after=10)
    running.stop_close = Close(1001)

    with pytest.raises(ViolationError, match="expected the run to end with 1001 plugrl-server-stop") as raised:
        stop(caller(running))
    assert raised.value.clause == "7.1 closing/stop"


def test_a_run_that_does_not_end(server, caller):
    with pytest.raises(ViolationError, match="within 5 exchanges"):
        stop(caller(server(), max_exchanges=5))


def test_a_client_that_is_forgotten(server, caller, monkeypatch):
    running = server()
    take = running._take

    def take_and_stop(endpoint, connection, received):
        close = take(endpoint, connection, received)
        return running.stop_close if running.exchanges == 10 else close

    monkeypatch.setattr(running, "_take", take_and_stop)
    with pytest.raises(ViolationError, match="the run is over for another client") as raised:
        stop(caller(running, timeout=0.3))
    assert raised.value.clause == "7.1 closing/stop"
