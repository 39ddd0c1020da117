"""A child's reports, log lines and last words; and what it does when nobody hears them."""

import dataclasses
import logging
import multiprocessing
import signal
import threading
import types

import pytest
from plugrl_env_client.client import Finished, Vital
from plugrl_env_client.link.interrupts import Interrupted, Interrupts
from plugrl_env_client.recording.counts import RecordingCounts
from plugrl_env_client.reporting.tally import nothing_yet
from plugrl_env_client.rollout import Outcome
from plugrl_env_client.supervision import reporter as reporter_module
from plugrl_env_client.supervision.messages import Report, Said
from plugrl_env_client.supervision.reporter import Reporter


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(reporter_module, "REPORT_SECONDS", 0.01)


@pytest.fixture
def pipe():
    ours, theirs = multiprocessing.Pipe(duplex=False)
    yield ours, theirs
    ours.close()
    theirs.close()


def group(steps, *, is_held_up=False):
    snapshot = dataclasses.replace(nothing_yet(2), steps=steps)
    vital = Vital(steps, busy=not is_held_up)
    return types.SimpleNamespace(snapshot=lambda: snapshot, vital=lambda: vital, is_held_up=is_held_up)


def next_message(pipe):
    assert pipe.poll(20)
    return pipe.recv()


def test_reports_tell_of_every_group_whose_envs_are_made(pipe):
    ours, theirs = pipe
    reporter = Reporter(theirs)
    with reporter.reporting():
        assert next_message(ours).vitals == ()
        reporter.watch(group(3))
        reporter.watch(group(4))
        reporter.recorded(dataclasses.replace(nothing_yet(4), recording=RecordingCounts(episodes=5)))
        while len((report := next_message(ours)).vitals) < 2 or report.snapshot.recording is None:
            pass
    assert isinstance(report, Report)
    assert report.vitals == ((3, True), (4, True))
    assert (report.snapshot.steps, len(report.snapshot.env_steps), report.snapshot.recording.episodes) == (7, 4, 5)


@pytest.mark.parametrize("when", ["held up", "over"])
def test_a_child_that_waits_for_what_it_records_says_so(pipe, when):
    ours, theirs = pipe
    reporter = Reporter(theirs)
    reporter.watch(group(3))
    with reporter.reporting():
        assert not next_message(ours).writing
        if when == "held up":
            reporter.watch(group(4, is_held_up=True))
        else:
            reporter.writing()
        while not next_message(ours).writing:
            pass


def test_log_lines_go_along_without_their_tracebacks(pipe):
    ours, theirs = pipe
    logger = logging.Logger("of a child")
    logger.addHandler(Reporter(theirs).log_handler())
    try:
        raise ValueError("deep down")
    except ValueError:
        logger.exception("%s failed", "arm")
    assert next_message(ours) == Said(logging.ERROR, "arm failed")


def test_the_end_is_the_last_thing_said(pipe):
    ours, theirs = pipe
    reporter = Reporter(theirs)
    with reporter.reporting():
        reporter.finished(Finished(Outcome.LIMIT, nothing_yet(1)))
    while not isinstance(message := next_message(ours), Finished):
        pass
    assert message.outcome is Outcome.LIMIT


def wait_for_ever(ours, theirs):
    taken = Interrupts(patient=True).handling(signal.SIGTERM)
    with taken as interrupts, interrupts.waiting(), Reporter(theirs).reporting():
        ours.close()
        threading.Event().wait(20)


def test_a_child_whose_parent_is_gone_ends(pipe):
    with pytest.raises(Interrupted):
        wait_for_ever(*pipe)
    Reporter(pipe[1]).say(logging.INFO, "to nobody, which is no error")


def test_a_child_that_cannot_end_by_itself_is_killed_with_its_session(pipe, monkeypatch):
    ours, theirs = pipe
    killed = threading.Event()
    calls = []
    monkeypatch.setattr(reporter_module, "ALONE_SECONDS", 0.01)
    monkeypatch.setattr("os.killpg", lambda *call: (calls.append(call), killed.set()))
    with Interrupts(patient=True).handling(signal.SIGTERM), Reporter(theirs).reporting():
        ours.close()
        assert killed.wait(20)
    assert calls[0] == (0, signal.SIGKILL)
