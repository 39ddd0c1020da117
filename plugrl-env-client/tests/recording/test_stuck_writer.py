"""A writer that is held up: who waits for it is seen to wait, and one that never goes on ends the recording alone."""

import threading

import numpy as np
import pytest
from plugrl_env_client.envs.dummy_v1 import DummyConfig
from plugrl_env_client.groups.group import Group
from plugrl_env_client.groups.share import whole
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.observers import RolloutObserver
from plugrl_env_client.options import ClientOptions, Run
from plugrl_env_client.recording.formats.npz_files import NpzFiles
from plugrl_env_client.recording.recorder import Recorder
from plugrl_env_client.recording.recorder_options import RecorderOptions, RecordingFailedError

STUCK = "the recorder has written nothing for 0.05 s (--hang-timeout)"


@pytest.fixture
def disk(monkeypatch):
    """An event without which nothing can be written."""
    works = threading.Event()

    class Blocked(NpzFiles):
        def commit(self, finished):
            assert works.wait(20)
            return super().commit(finished)

    monkeypatch.setattr("plugrl_env_client.recording.recorder.NpzFiles", Blocked)
    return works


@pytest.fixture
def recorder(tmp_path, disk):
    """Makes recorders with so much patience; at the end the disk works again, and the writers end."""
    made = []

    def make(patience, **options):
        made.append(Recorder(RecorderOptions(format=("npz",), **options), tmp_path, seed=0, patience=patience))
        return made[-1]

    yield make
    disk.set()
    for each in made:
        each.close()
    assert [path.name for path in (tmp_path / ".partial").iterdir()] == ["lock"]


def test_a_stuck_writer_ends_the_recording_with_one_warning_and_not_the_run(tmp_path, coded, recorder, caplog):
    stuck = recorder(0.05)
    env = coded.Env(2)
    coded.play(env, stuck.observer(env), 30)
    stuck.close()
    stuck.require()
    assert stuck.counts.failure == STUCK
    assert (stuck.counts.episodes, list((tmp_path / "npz").glob("*"))) == (0, [])
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [f"recording has ended, after 0 episodes: {STUCK}"]


def test_a_stuck_writer_ends_the_run_where_recording_is_required(coded, recorder):
    stuck = recorder(0.05, required=True)
    env = coded.Env(1)
    with pytest.raises(RecordingFailedError, match=r"recording failed: the recorder has written nothing for 0\.05 s"):
        coded.play(env, stuck.observer(env), 30)
    stuck.close()


def test_a_writer_that_is_stuck_when_the_run_ends_does_not_keep_it(coded, recorder):
    stuck = recorder(0.05, overflow="drop")
    env = coded.Env(1)
    coded.play(env, stuck.observer(env), 3)
    assert stuck.counts.failure is None
    stuck.close()
    assert stuck.counts.failure == STUCK


def test_a_rollout_is_seen_to_wait_for_the_recorder_and_goes_on(coded, recorder, disk, monkeypatch):
    waiting = threading.Event()
    slow = recorder(None)
    changed = slow._intake._changed
    wait_for = changed.wait_for
    monkeypatch.setattr(changed, "wait_for", lambda *args: waiting.set() or wait_for(*args))
    env = coded.Env(1)
    observer = slow.observer(env)
    running = threading.Thread(target=coded.play, args=(env, observer, 10))
    running.start()
    assert waiting.wait(20)
    assert observer.is_waiting
    disk.set()
    running.join(20)
    assert not observer.is_waiting
    slow.close()
    assert slow.counts.episodes == len(coded.whole_episodes(0, 10))
    assert slow.counts.failure is None


def test_a_group_is_not_at_work_while_an_observer_holds_it_up(fake_server, actions):
    """So its supervisor does not take it for one that hangs."""
    seen = []

    class Recording(RolloutObserver):
        def stepped(self, actions, step, resetting):
            seen.append(group.vital().busy)
            self.is_waiting = True
            seen.append(group.vital().busy)
            self.is_waiting = False

    def script(peer):
        peer.greet()
        peer.serve(actions(1, 1), exchanges=1)
        peer.stop()

    options = ClientOptions(server_port=fake_server(script).port, max_reconnects=0)
    run = Run("dummy-v1", DummyConfig(), options, 0, 0)
    group = Group(run, whole(options), Interrupts(), lambda env: [Recording()])
    group.run(lambda: None)
    assert np.array(seen).reshape(-1, 2).tolist() == [[True, False]]
