import io
import logging
from pathlib import Path

import pytest
from plugrl_server.training.progress import Progress
from plugrl_server.training.reporter import Reporter
from plugrl_server.training.trackers import Trackers
from rich.console import Console


class Recorder:
    name = "recorder"

    def __init__(self):
        self.rows, self.closed = [], False

    def log(self, step, metrics):
        self.rows.append((step, dict(metrics)))

    def close(self):
        self.closed = True


@pytest.fixture
def told():
    return []


@pytest.fixture
def reporter(told):
    progress = Progress(Console(file=io.StringIO()), title="run", total=100, live=False)
    return Reporter(progress, lambda host, port: told.append((host, port)), lambda: told.append("connections"))


def test_a_learn_step_is_one_row_and_a_point_of_each_curve(reporter):
    rows, curves = Recorder(), Recorder()
    reporter.attach(Trackers([rows]), Trackers([curves]))
    reporter.stepped(5)
    reporter.learned(10, {"losses/a": 1.0})
    reporter.logged(11, {"train/b": 2.0})
    ((step, row),) = rows.rows
    assert step == 10
    assert set(row) == {"losses/a", "time/steps_per_second"}
    assert curves.rows == [(10, row), (11, {"train/b": 2.0})]
    assert reporter.progress.step == 10
    reporter.close()
    assert rows.closed
    assert curves.closed


def test_what_a_run_measured_is_a_row_and_a_point_too(reporter):
    rows, curves = Recorder(), Recorder()
    reporter.attach(Trackers([rows]), Trackers([curves]))
    reporter.concluded(7, {"eval/return": 1.0})
    assert rows.rows == curves.rows == [(7, {"eval/return": 1.0})]


def test_the_phase_goes_back_to_what_the_connections_say(reporter):
    reporter.connected(1)
    reporter.learning(True)
    assert reporter.progress.phase == "learning"
    reporter.learning(False)
    assert reporter.progress.phase == "collecting"
    reporter.learning(True)
    reporter.disconnected(0)
    reporter.learning(False)
    assert reporter.progress.phase == "waiting for client"


def test_listening_and_coming_and_leaving_clients_are_passed_on(reporter, told):
    reporter.listening("127.0.0.1", 81)
    reporter.connected(1)
    reporter.disconnected(0)
    assert told == [("127.0.0.1", 81), "connections", "connections"]


def test_checkpoints_and_warnings_are_logged(reporter, caplog):
    with caplog.at_level(logging.INFO):
        reporter.saved(Path("x/10"))
        reporter.warned("disk almost full")
    assert caplog.messages == ["checkpoint saved: x/10", "disk almost full"]
