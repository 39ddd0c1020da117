"""The client checker as a whole: every scenario in turn."""

import threading

import numpy as np
import pytest
from plugrl_protocol.conformance.clauses import CLAUSES, Check, Side
from plugrl_protocol.conformance.client_checker import check_client
from plugrl_protocol.conformance.peer.listener import Listener
from plugrl_protocol.conformance.report import Report
from plugrl_protocol.spaces import BoxSpace, Declaration

ALL = frozenset({"reuse-feedback-obs", "declare-spaces"})
DECLARATION = Declaration(
    BoxSpace((3,), np.dtype(np.float32), np.full(3, -np.inf, np.float32), np.full(3, np.inf, np.float32)),
    env="probe",
    num_envs=3,
    max_episode_steps=7,
    client=0,
)


@pytest.fixture
def check(client_options, probe_client, monkeypatch):
    """Runs the checker against clients that are started one after the other, as a user would."""
    monkeypatch.setattr("plugrl_protocol.conformance.client_scenarios.stage._LINGER_SECONDS", 0.15)

    def run(scenarios: tuple[str, ...], **changes) -> Report:
        listener = Listener("127.0.0.1", 0)
        report = Report("checker", Side.CLIENT)
        announced = threading.Semaphore(0)

        def clients():
            for _ in scenarios:
                announced.acquire()
                client = probe_client(listener.port, **changes)
                client.declaration = DECLARATION
                client.run()

        thread = threading.Thread(target=clients, daemon=True)
        thread.start()
        options = client_options(scenarios=scenarios, features=ALL)
        check_client(options, report, listener, lambda _: announced.release())
        listener.close()
        thread.join(5.0)
        return report

    return run


def listed(check: Check) -> set[str]:
    """What the list says that a scenario checks; these clients are no processes, so they have no exit status."""
    return {clause.id for clause in CLAUSES if check in clause.checks} - {"7.1 closing/exit-status"}


@pytest.mark.parametrize(("scenario", "part"), [("basic", Check.BASIC), ("resync", Check.RESYNC)])
def test_a_scenario_exercises_just_the_clauses_that_the_list_says(check, scenario, part):
    """So the list, the spec (tested against the list) and the scenarios name the same set."""
    report = check((scenario,))

    assert report.violations == []
    assert set(report.exercised()) == listed(part)


def test_watch_mode_exercises_just_the_clauses_that_the_list_says(check):
    stopped, leaving = check(("watch",)), check(("watch",), steps=4)

    assert stopped.violations == leaving.violations == []
    assert {*stopped.exercised(), *leaving.exercised()} == listed(Check.WATCH)


@pytest.mark.parametrize(("scenario", "part"), [("text", Check.TEXT), ("reject", Check.REJECT)])
def test_a_scenario_that_ends_with_the_first_infer_exercises_what_it_is_for(check, scenario, part):
    report = check((scenario,))

    assert report.violations == []
    assert listed(part) <= set(report.exercised())


def test_without_a_client_the_rest_is_not_waited_for(client_options):
    listener = Listener("127.0.0.1", 0)
    report = Report("checker", Side.CLIENT)
    check_client(client_options(scenarios=("basic", "resync", "text"), timeout=0.2), report, listener)
    listener.close()

    assert [one.scenario for one in report.violations] == ["basic"]
    assert report.remarks == ["not run, since no client came: resync, text"]
