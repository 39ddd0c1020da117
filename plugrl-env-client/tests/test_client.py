"""One process's share of a run: in one group, or in several."""

import dataclasses
import threading
import tracemalloc
from unittest.mock import ANY

import numpy as np
import pytest
from plugrl_env_client.client import Finished, _recorder, run_alone, run_client
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.dummy_v1 import DummyConfig, DummyEnv
from plugrl_env_client.groups.share import Share, whole
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.options import ClientOptions, Run, RunnerOptions
from plugrl_env_client.recording.formats.npz_files import NpzFiles
from plugrl_env_client.recording.recorder import Recorder
from plugrl_env_client.recording.recorder_options import RecorderOptions
from plugrl_env_client.rollout import Outcome


def options(port=1, **changes):
    return dataclasses.replace(ClientOptions(server_port=port, max_reconnects=0), **changes)


def client(opts, share=None, *, config=None, show=lambda snapshot: None, interval=1e9, **more):
    run = Run("dummy-v1", config or DummyConfig(), opts, 0, 0)
    settings = {"interrupts": Interrupts(), "show": show, "interval": interval, **more}
    return run_alone(run, **settings) if share is None else run_client(run, share, **settings)


def test_the_counts_are_shown_now_and_then(fake_server, actions):
    def script(peer):
        peer.greet()
        peer.serve(actions(1, 1), exchanges=20)
        peer.stop()

    shown = []
    client(options(fake_server(script).port), show=shown.append, interval=0.0)
    assert [snapshot.steps for snapshot in shown] == list(range(1, 21))
    assert all(0 <= snapshot.wait_share <= 1 for snapshot in shown)


@pytest.mark.parametrize(("groups", "sizes"), [(1, [5]), (2, [2, 3]), (5, [1, 1, 1, 1, 1])])
def test_each_group_has_a_connection(fake_server, actions, groups, sizes):
    def script(peer):
        peer.greet()
        peer.serve(actions(1, 7))

    server = fake_server(script)
    share = Share(1, 10, 5, 60, None)
    finished = client(options(server.port, num_envs=15, num_procs=3, num_groups=groups), share)
    server.wait()
    assert finished.error is None
    assert sorted(len(peer.infers[0]["env_indices"]) for peer in server.peers) == sizes
    assert finished.snapshot.steps == 60
    assert finished.snapshot.feedback_rows == server.feedback_rows == 60


def recording(folder, **changes):
    return {
        "recorder": RecorderOptions(format=("npz",), folder=folder, **changes),
        "runner": RunnerOptions(max_episode_steps=3),
    }


def serve_for_ever(actions):
    def script(peer):
        peer.greet()
        peer.serve(actions(2, 1))

    return script


@pytest.mark.parametrize("groups", [1, 3])
def test_what_is_recorded_is_the_same_however_the_envs_are_divided(fake_server, actions, tmp_path, groups):
    server = fake_server(serve_for_ever(actions))
    opts = options(server.port, num_envs=6, num_procs=2, num_groups=groups, **recording(tmp_path, every=2))
    finished = client(opts, Share(1, 3, 3, 3 * 9, None))
    counts = finished.snapshot.recording
    assert (finished.error, counts.episodes, counts.frames, counts.failure) == (None, 6, 18, None)
    assert finished.snapshot.as_json()["recording"]["bytes"] == counts.size > 0
    found = {}
    for path in (tmp_path / "npz").iterdir():
        with np.load(path) as data:
            found[int(data["env"]), int(data["episode"])] = int(data["seed"]) if "seed" in data else None
    assert found == {(env, episode): env if episode == 0 else None for env in (3, 4, 5) for episode in (0, 2)}


def test_it_is_said_when_all_has_been_run_and_need_only_be_written(fake_server, actions, tmp_path, monkeypatch):
    said = []
    close = Recorder.close
    monkeypatch.setattr(Recorder, "close", lambda recorder: (said.append("close"), close(recorder)))
    opts = options(fake_server(serve_for_ever(actions)).port, num_steps=9, **recording(tmp_path))
    finished = client(opts, whole(opts), writing=lambda: said.append("writing"))
    assert (finished.error, finished.snapshot.recording.episodes) == (None, 3)
    assert said == ["writing", "close"]


def test_nothing_is_said_of_recording_where_nothing_is_recorded(fake_server, actions):
    finished = client(options(fake_server(serve_for_ever(actions)).port, num_steps=4))
    assert finished.snapshot.recording is None
    assert "recording" not in finished.snapshot.as_json()


CHUNK = 5
CAMERA = DummyConfig(images=("cam",), image_size=256)
IMAGE_BYTES = 256 * 256 * 3


@pytest.fixture
def allocated(monkeypatch):
    """Bytes that were allocated at a time from each step of the envs to the next, where nothing was exchanged."""
    step, most = DummyEnv.step, []

    def measured(self, actions):
        peak = tracemalloc.get_traced_memory()[1]
        self.taken = getattr(self, "taken", -1) + 1
        if self.taken % CHUNK:  # otherwise a feedback, an infer and an action lie between
            most.append(peak - self.before)
        told = step(self, actions)
        tracemalloc.reset_peak()
        self.before = tracemalloc.get_traced_memory()[0]
        return told

    monkeypatch.setattr(DummyEnv, "step", measured)
    tracemalloc.start()
    yield most
    tracemalloc.stop()


@pytest.mark.parametrize("recorded", [False, True])
def test_no_image_is_copied_from_step_to_step_unless_recorded(fake_server, actions, tmp_path, allocated, recorded):
    def script(peer):
        peer.greet()
        peer.serve(actions(CHUNK, 1))

    changes = {"recorder": RecorderOptions(format=("npz",), folder=tmp_path)} if recorded else {}
    opts = options(fake_server(script).port, num_envs=2, num_steps=2 * 3 * CHUNK, **changes)
    finished = client(opts, config=CAMERA)
    assert (finished.error, finished.snapshot.steps, len(allocated)) == (None, 30, 3 * (CHUNK - 1))
    if recorded:
        assert max(allocated) >= IMAGE_BYTES, "this is how a copy would look"
    else:
        assert max(allocated) < IMAGE_BYTES // 4


@pytest.mark.parametrize("required", [False, True])
def test_a_full_disk_fails_the_run_only_where_recording_is_required(
    fake_server, actions, tmp_path, monkeypatch, required
):
    def full(self, finished):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NpzFiles, "commit", full)
    server = fake_server(serve_for_ever(actions))
    finished = client(options(server.port, num_steps=30, **recording(tmp_path, required=required)))
    assert "No space left" in finished.snapshot.recording.failure
    assert finished.outcome is (Outcome.FAILED if required else Outcome.LIMIT)
    assert ("recording failed" in (finished.error or "")) == required
    assert not finished.usage


def test_what_fails_after_the_last_step_counts_too(fake_server, actions, tmp_path, monkeypatch):
    ended = threading.Event()

    def full(self, finished):
        assert ended.wait(20)
        raise OSError(28, "No space left on device")

    def close(self):
        ended.set()
        closing(self)

    closing = Recorder.close
    monkeypatch.setattr(Recorder, "close", close)
    monkeypatch.setattr(NpzFiles, "commit", full)
    server = fake_server(serve_for_ever(actions))
    opts = options(server.port, num_steps=3, **recording(tmp_path, required=True, overflow="drop"))
    finished = client(opts)
    assert (finished.outcome, finished.snapshot.steps) == (Outcome.FAILED, 3)
    assert "recording failed" in finished.error


def test_a_folder_that_cannot_be_written_is_a_mistake_of_the_user(tmp_path):
    (tmp_path / "file").touch()
    finished = client(options(**recording(tmp_path / "file")))
    assert (finished.outcome, finished.final, finished.usage) == (Outcome.FAILED, True, True)
    assert "--recorder.folder" in finished.error


@pytest.mark.parametrize("groups", [1, 2])
def test_envs_that_cannot_be_made_fail_the_run(monkeypatch, groups):
    def make(self, config, num_envs):
        raise EnvError("no third camera")

    monkeypatch.setattr(DummyEnv, "__init__", make)
    finished = client(options(num_envs=2, num_groups=groups))
    assert finished == Finished(Outcome.FAILED, ANY, "no third camera", final=True, usage=True)
    assert finished.snapshot.env_steps.tolist() == [0, 0]


@pytest.mark.parametrize("groups", [1, 2])
def test_envs_that_break_while_they_are_made_fail_the_run_and_leave_a_traceback(monkeypatch, caplog, groups):
    def make(self, config, num_envs):
        raise RuntimeError("joint 3")

    monkeypatch.setattr(DummyEnv, "__init__", make)
    finished = client(options(num_envs=2, num_groups=groups))
    assert finished == Finished(Outcome.FAILED, ANY, "dummy-v1 failed: RuntimeError: joint 3")
    assert "in make" in caplog.text


def test_envs_that_break_while_they_are_made_at_ctrl_c_were_interrupted(monkeypatch):
    def make(self, config, num_envs):
        interrupts.request()
        raise EOFError("the worker process is gone")

    monkeypatch.setattr(DummyEnv, "__init__", make)
    run = Run("dummy-v1", DummyConfig(), options(), 0, 0)
    interrupts = Interrupts()
    finished = run_alone(run, interrupts=interrupts, show=lambda snapshot: None, interval=1e9)
    assert (finished.outcome, finished.error) == (Outcome.INTERRUPTED, None)


@pytest.mark.parametrize(
    ("recorder", "pace", "expected"), [(None, None, 30), (None, 12.4, 12), (None, 0.3, 1), (25, 12.4, 25)]
)
def test_recordings_have_the_pace_of_the_run(tmp_path, recorder, pace, expected):
    opts = options(
        recorder=RecorderOptions(format=("npz",), folder=tmp_path, fps=recorder), runner=RunnerOptions(fps=pace)
    )
    env = DummyEnv(DummyConfig(), 1)
    with _recorder(Run("dummy-v1", DummyConfig(), opts, 0, 0), lambda: None) as made:
        assert made.begin(env, env.reset(0)).fps == expected
