"""Which episodes are recorded, what happens when writing is slow or fails, and what is copied."""

import threading

import numpy as np
import pytest
from plugrl_env_client.recording.formats.npz_files import NpzFiles
from plugrl_env_client.recording.recorder import Recorder
from plugrl_env_client.recording.recorder_options import RecorderOptions, RecordingError, RecordingFailedError


def recorded(folder):
    """(env, episode) of what is there."""
    found = []
    for path in sorted((folder / "npz").glob("*.npz")):
        with np.load(path) as data:
            found.append((int(data["env"]), int(data["episode"])))
    return found


def test_every_so_manieth_episode_of_each_env(tmp_path, coded):
    coded.record(tmp_path, "npz", num_envs=2, steps=30, every=3)
    expected = [(i, e) for i in range(2) for e in coded.whole_episodes(i, 30) if e % 3 == 0]
    assert len(expected) > 4
    assert recorded(tmp_path) == expected


def test_chosen_envs_by_their_index_over_all_processes(tmp_path, coded):
    recorder = Recorder(RecorderOptions(format=("npz",), envs=(1, 5)), tmp_path, seed=3)
    for first in (0, 4):  # two rollouts of one process, say
        env = coded.Env(3, first=first)
        coded.play(env, recorder.observer(env), 5, first_env=first)
    recorder.close()
    assert recorded(tmp_path) == [(1, 0), (5, 0)]
    with np.load(tmp_path / "npz/env-0005_episode-000000.npz") as data:
        assert data["seed"] == 3 + 5
        np.testing.assert_array_equal(data["states.where"], coded.states(5, 0))


def test_chosen_images_only(tmp_path, coded):
    env = coded.Env(1)
    env.images["wrist"] = np.zeros((1, 4, 4, 1), np.uint8)
    coded.record(tmp_path, "npz", env=env, steps=3, image_keys=("wrist",))
    with np.load(tmp_path / "npz/env-0000_episode-000000.npz") as data:
        assert [name for name in data if name.startswith("images")] == ["images.wrist"]


def test_an_image_that_is_not_there_is_named(tmp_path, coded):
    with pytest.raises(RecordingError, match=r"--recorder\.image-keys wrist: coded has no such image; .* front"):
        coded.record(tmp_path, "npz", image_keys=("wrist",))


def test_several_formats_at_once(tmp_path, coded):
    coded.record(tmp_path, "npz", "frames", "npz", num_envs=1, steps=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".partial", "frames", "npz"]


def test_each_image_is_copied_once(tmp_path, coded, monkeypatch):
    """What the writer is given is a copy, and what it passes on are views of that."""
    given, passed = [], []
    recorder = Recorder(RecorderOptions(format=("frames",)), tmp_path, seed=0)
    put = recorder._intake.put
    monkeypatch.setattr(recorder._intake, "put", lambda item, wait: given.append(item) or put(item, wait=wait))
    begin = recorder._formats[0].begin

    def spied():
        sink = begin()
        frame = sink.frame
        sink.frame = lambda images: passed.append(images["front"]) or frame(images)
        return sink

    monkeypatch.setattr(recorder._formats[0], "begin", spied)
    env = coded.Env(1)
    coded.play(env, recorder.observer(env), 3)
    recorder.close()
    copies = [item.rows.images["front"] for item in given if hasattr(item, "rows")]
    assert not any(np.shares_memory(copy, env.images["front"]) for copy in copies)
    assert len(passed) == 5  # the next episode has begun
    assert all(any(np.shares_memory(image, copy) for copy in copies) for image in passed)


class Slow(NpzFiles):
    """Writes nothing until it may."""

    may_go = threading.Event()

    def begin(self):
        assert self.may_go.wait(20)
        return super().begin()


@pytest.fixture
def slow(monkeypatch):
    Slow.may_go = threading.Event()
    monkeypatch.setattr("plugrl_env_client.recording.recorder.NpzFiles", Slow)
    yield Slow.may_go
    Slow.may_go.set()


def small_queue(recorder, coded, steps):
    """Room for so many steps of one env."""
    recorder._intake._limit = steps * (np.prod(coded.Env(1).size) + 3 * 8 + 4 + 8)


def test_drop_leaves_whole_episodes_out_and_counts_them(tmp_path, coded, slow):
    recorder = Recorder(RecorderOptions(format=("npz",), overflow="drop"), tmp_path, seed=0)
    small_queue(recorder, coded, 6)
    env = coded.Env(1)
    coded.play(env, recorder.observer(env), 30)  # the writer holds one item, the queue six
    slow.set()
    recorder.close()
    counts, whole = recorder.counts, coded.whole_episodes(0, 30)
    assert recorder.counts.failure is None
    assert counts.dropped_episodes > 0
    assert [e for _, e in recorded(tmp_path)] == whole[: counts.episodes]
    # the episode that was under way when the run ended was dropped too, or never begun
    assert counts.episodes + counts.dropped_episodes in (len(whole), len(whole) + 1)
    for _, e in recorded(tmp_path):
        with np.load(tmp_path / f"npz/env-0000_episode-{e:06d}.npz") as data:
            np.testing.assert_array_equal(data["states.where"], coded.states(0, e))


def test_wait_holds_the_envs_up_and_loses_nothing(tmp_path, coded, slow):
    recorder = Recorder(RecorderOptions(format=("npz",)), tmp_path, seed=0)
    small_queue(recorder, coded, 2)
    env = coded.Env(2)
    running = threading.Thread(target=coded.play, args=(env, recorder.observer(env), 30))
    running.start()
    slow.set()
    running.join(20)
    recorder.close()
    assert recorded(tmp_path) == [(i, e) for i in range(2) for e in coded.whole_episodes(i, 30)]
    assert recorder.counts.dropped_episodes == 0


@pytest.mark.parametrize("every", [1, 2])
def test_the_next_episode_begins_when_the_last_one_is_safe(tmp_path, coded, every):
    """So a process that is killed loses the current episodes only; also where the next one is not recorded."""
    missing = []

    class Watching(coded.Env):
        def step(self, actions):
            there = {path.name for path in (tmp_path / "npz").glob("*")}
            over = [(i, e) for i in range(self.num_envs) for e in range(0, self.episode[i], every)]
            missing.extend({f"env-{i:04d}_episode-{e:06d}.npz" for i, e in over} - there)
            return super().step(actions)

    coded.record(tmp_path, "npz", env=Watching(3), steps=20, every=every)
    assert missing == []
    assert len(recorded(tmp_path)) > 10 // every


def break_after(monkeypatch, commits):
    commit, done = NpzFiles.commit, []

    def broken(self, finished):
        if len(done) == commits:
            raise OSError(28, "No space left on device")
        done.append(finished)
        return commit(self, finished)

    monkeypatch.setattr(NpzFiles, "commit", broken)


def test_a_full_disk_ends_the_recording_with_one_warning_and_not_the_run(tmp_path, coded, monkeypatch, caplog):
    break_after(monkeypatch, 1)
    recorder = coded.record(tmp_path, "npz", num_envs=1, steps=30)
    assert recorder.counts.failure == "OSError: [Errno 28] No space left on device"
    assert recorded(tmp_path) == [(0, 0)]
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["recording has ended, after 1 episodes: OSError: [Errno 28] No space left on device"]
    assert [path.name for path in (tmp_path / ".partial").iterdir()] == ["lock"]
    recorder.require()


def test_a_full_disk_ends_the_run_where_recording_is_required(tmp_path, coded, monkeypatch):
    break_after(monkeypatch, 1)
    with pytest.raises(RecordingFailedError, match=r"recording failed: OSError: \[Errno 28\]"):
        coded.record(tmp_path, "npz", num_envs=1, steps=30, required=True)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RecordingError, match=r"--recorder\.folder .*file: (Not a directory|File exists)"):
        Recorder(RecorderOptions(format=("npz",)), tmp_path / "file", seed=0)


def test_a_dataset_that_cannot_be_opened_is_named(tmp_path, coded, monkeypatch):
    def refuse(self, layout):
        raise NotADirectoryError(20, "Not a directory", str(tmp_path / "npz"))

    monkeypatch.setattr(NpzFiles, "open", refuse)
    with pytest.raises(RecordingError, match=r"--recorder\.format npz: .*npz: Not a directory"):
        coded.record(tmp_path, "npz", num_envs=1, steps=3)


def test_text_that_begins_late_ends_the_recording(tmp_path, coded):
    env = coded.Env(1)
    env.text = np.array([""], "<U8")
    step = env.step
    env.step = lambda actions: env.text.__setitem__(0, "now") or step(actions)
    recorder = coded.record(tmp_path, "npz", env=env, steps=3)
    assert "coded began to give text" in recorder.counts.failure


def test_a_recorder_that_saw_nothing_closes(tmp_path):
    recorder = Recorder(RecorderOptions(format=("npz",)), tmp_path, seed=0)
    recorder.close()
    recorder.close()
    assert recorder.counts.episodes == 0
