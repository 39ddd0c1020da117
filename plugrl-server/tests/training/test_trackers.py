import importlib.util
import logging
import math
import sys
import types

import pytest
from plugrl_server.run_config import TrackConfig, UsageError
from plugrl_server.training import trackers
from plugrl_server.training.trackers import Swanlab, TensorBoard, Trackers, Wandb, check_packages, opened_trackers


class Recorder:
    def __init__(self, name="recorder", broken=()):
        self.name, self.broken, self.rows, self.closed = name, broken, [], False

    def log(self, step, metrics):
        if "log" in self.broken:
            raise OSError("disk full")
        self.rows.append((step, dict(metrics)))

    def close(self):
        if "close" in self.broken:
            raise OSError("gone")
        self.closed = True


def test_every_tracker_gets_every_row():
    first, second = Recorder(), Recorder()
    both = Trackers([first, second])
    both.log(1, {"a/b": 2.0})
    both.close()
    assert first.rows == second.rows == [(1, {"a/b": 2.0})]
    assert first.closed
    assert second.closed


def test_a_tracker_that_fails_is_named_once_and_the_run_goes_on(caplog):
    bad, good = Recorder("bad", broken=("log",)), Recorder("good")
    both = Trackers([bad, good])
    with caplog.at_level(logging.WARNING):
        both.log(1, {})
        both.log(2, {})
        both.close()
    assert [record.getMessage() for record in caplog.records] == [
        "bad failed and is off from here on: OSError: disk full"
    ]
    assert len(good.rows) == 2
    assert good.closed


def test_a_tracker_that_cannot_close_does_not_keep_the_others_from_it():
    bad, good = Recorder(broken=("close",)), Recorder()
    Trackers([bad, good]).close()
    assert good.closed


def test_a_tracker_that_cannot_be_opened_is_left_out(tmp_path, monkeypatch, caplog):
    def fail(**_):
        raise RuntimeError("not logged in")

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=fail))
    found = opened_trackers(TrackConfig(wandb=True), "run", {}, tmp_path)
    assert [tracker.name for tracker in found] == ["TensorBoard"]
    found[0].close()
    assert "wandb cannot be opened, the run goes on without it: RuntimeError: not logged in" in caplog.text


@pytest.mark.parametrize("package", ["wandb", "swanlab"])
def test_a_missing_package_is_named_with_its_extra(package, monkeypatch):
    """Lesson 25."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as caught:
        check_packages(TrackConfig(**{package: True}))
    assert str(caught.value) == (
        f"--track.{package} needs the package {package}, which is not installed: pip install 'plugrl-server[{package}]'"
    )
    check_packages(TrackConfig())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_writes_points_that_tensorboard_reads_and_resume_hides_later_ones(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = TensorBoard(tmp_path)
    for step in (1, 2, 3):
        board.log(step, {"rollout/reward": float(step), "losses/nan": math.nan})
    board.close()
    again = TensorBoard(tmp_path, last_step=2)
    again.log(3, {"rollout/reward": 30.0})
    again.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.Tags()["scalars"] == ["rollout/reward"]
    assert [(event.step, event.value) for event in events.Scalars("rollout/reward")] == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_wandb_gets_the_name_the_configuration_and_finite_numbers(tmp_path, monkeypatch):
    calls = []
    run = types.SimpleNamespace(
        log=lambda metrics, step: calls.append((step, metrics)), finish=lambda: calls.append("finish")
    )
    fake = types.SimpleNamespace(init=lambda **options: calls.append(options) or run)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    tracker = Wandb("run", {"seed": 1}, tmp_path, TrackConfig(project="p", offline=True))
    tracker.log(5, {"a/b": 1.0, "a/nan": math.nan})
    tracker.close()
    assert calls == [
        {
            "project": "p",
            "entity": None,
            "name": "run",
            "config": {"seed": 1},
            "dir": str(tmp_path),
            "mode": "offline",
        },
        (5, {"a/b": 1.0}),
        "finish",
    ]


def test_swanlab_gets_the_name_the_configuration_and_finite_numbers(tmp_path, monkeypatch):
    calls = []
    fake = types.SimpleNamespace(
        init=lambda **options: calls.append(options),
        log=lambda metrics, step: calls.append((step, metrics)),
        finish=lambda: calls.append("finish"),
    )
    monkeypatch.setitem(sys.modules, "swanlab", fake)
    tracker = Swanlab("run", {"seed": 1}, tmp_path, TrackConfig(project="p", entity="me"))
    tracker.log(5, {"a/b": 1.0})
    tracker.close()
    assert calls[0]["workspace"] == "me"
    assert calls[0]["mode"] == "cloud"
    assert calls[1:] == [(5, {"a/b": 1.0}), "finish"]


def test_the_module_needs_no_torch():
    """Lesson 23: torch is imported when TensorBoard is opened."""
    assert "torch" not in vars(trackers)
