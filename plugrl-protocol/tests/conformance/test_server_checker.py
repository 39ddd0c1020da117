"""The server checker as a whole: every phase in turn, and the server's process."""

import pytest
from plugrl_protocol.closing import Close
from plugrl_protocol.conformance.calling.caller import KeyNeededError
from plugrl_protocol.conformance.clauses import CLAUSES, Side
from plugrl_protocol.conformance.report import Report
from plugrl_protocol.conformance.server_checker import UnreachableError, check_server


@pytest.fixture
def report() -> Report:
    return Report("checker", Side.SERVER)


def test_the_phases_exercise_just_the_clauses_that_the_list_says(server, server_options, report):
    """So the list, the spec (tested against the list) and the phases name the same set."""
    check_server(server_options(server(stop_after=400).port, until_stop=True, max_exchanges=400), report)
    keyed = Report("checker", Side.SERVER)
    check_server(server_options(server(key="secret").port, api_key="secret"), keyed)
    assert report.violations == keyed.violations == []
    exercised = set(report.exercised()) | set(keyed.exercised())

    assert exercised == {clause.id for clause in CLAUSES if clause.checked_on(Side.SERVER)} - {
        "7.1 closing/exit-status"
    }


def test_features_that_are_not_offered_are_not_exercised(server, server_options, report):
    running = server()
    running.features = []
    check_server(server_options(running.port), report)

    assert report.clean
    assert {"10.1 reuse/held", "10.2 spaces/agree", "7.1 closing/stop"} <= set(report.not_exercised())


def test_a_violation_ends_its_phase_and_the_next_one_runs(server, server_options, report):
    running = server()
    running.judge = lambda error: error.close if "10.1" in error.clause else Close(1002)
    check_server(server_options(running.port), report)

    assert [(one.clause, one.scenario) for one in report.violations] == [("7.2 closing/resync", "errors")]
    assert report.has_passed("10.1 reuse/answered")
    assert any("faulty: infer" in line for line in report.violations[0].evidence)


def test_without_metadata_there_is_no_next_phase(server, server_options, report):
    running = server()
    running._converse = lambda endpoint: endpoint.receive(5.0)
    check_server(server_options(running.port, timeout=0.3), report)

    assert [(one.clause, one.scenario) for one in report.violations] == [("5.1 metadata/sent", "exchange")]


def test_a_server_that_is_gone_is_not_asked_again(server, server_options, report):
    running = server()

    def give_up(error):
        running.stop_listening()
        return Close(1011, "Internal server error.")

    running.judge = give_up
    check_server(server_options(running.port), report)

    assert [one.clause for one in report.violations] == ["7.2 closing/resync"]
    assert report.remarks[0].startswith("nothing was run after phase errors: cannot connect")


def test_a_connection_that_is_closed_out_of_turn(server, server_options, report, monkeypatch):
    running = server()
    answer, answered = running._answer, []

    def tired(endpoint, connection, infer):
        answered.append(infer)
        return Close(1001, "bored") if len(answered) > 7 else answer(endpoint, connection, infer)

    monkeypatch.setattr(running, "_answer", tired)
    running.features = []
    check_server(server_options(running.port, exchanges=7), report)

    assert report.violations[0].clause == "1.1 framing/size"


def test_a_run_that_ends_too_soon_is_no_pass(server, server_options, report):
    with pytest.raises(UnreachableError, match="the run ended in phase errors"):
        check_server(server_options(server(stop_after=20).port), report)


def test_no_server(server, server_options, report):
    running = server()
    running.close()

    with pytest.raises(UnreachableError, match="no server to grade: cannot connect"):
        check_server(server_options(running.port), report)


def test_a_key_that_is_needed(server, server_options, report):
    with pytest.raises(KeyNeededError):
        check_server(server_options(server(key="secret").port), report)


def test_a_command_that_ends_before_it_listens(server_options, report):
    with pytest.raises(UnreachableError, match=r"(?s)the server ended before it listened.*no such policy"):
        check_server(server_options(1, command="echo no such policy; exit 2"), report)


def test_a_command_that_never_listens(server_options, report):
    with pytest.raises(UnreachableError, match="no server to grade"):
        check_server(server_options(1, command="exec sleep 60", timeout=0.2), report)
