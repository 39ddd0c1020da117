"""Nothing is lost but what was under way: files, folders, locks, and processes that are killed."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from plugrl_env_client.recording.durable import Scratch, locked, publish, publish_json, read_json, size_of
from plugrl_env_client.recording.recorder_options import RecordingError

STEPS = 5  # of each episode
EXCHANGES_OF_AN_EPISODE = 3  # two steps a chunk


def test_what_is_published_is_whole_and_gone_from_where_it_was_made(tmp_path):
    scratch = Scratch(tmp_path)
    made = scratch.new(".txt")
    made.write_text("all")
    publish(made, tmp_path / "deep/er/file.txt")
    assert (tmp_path / "deep/er/file.txt").read_text() == "all"
    folder = scratch.new()
    (folder / "in").mkdir(parents=True)
    (folder / "in/one.txt").write_text("one")
    assert size_of(folder) == 3
    publish(folder, tmp_path / "folder")
    assert (tmp_path / "folder/in/one.txt").read_text() == "one"
    publish_json({"a": 1}, tmp_path / "some.json", scratch)
    publish_json({"a": 2}, tmp_path / "some.json", scratch)
    assert json.loads((tmp_path / "some.json").read_text()) == {"a": 2}
    assert [path.name for path in scratch.path.iterdir()] == ["lock"]
    scratch.close()
    assert not scratch.path.exists()


def test_a_file_that_is_no_json_object_is_named(tmp_path):
    path = tmp_path / "meta.json"
    assert read_json(path) is None
    for content, wrong in (
        (b'{"a": ', "expected JSON: .*line 1"),
        (b"\xff", "expected JSON: "),
        (b"[1]", "got a list"),
    ):
        path.write_bytes(content)
        with pytest.raises(RecordingError, match=rf"meta\.json: .*{wrong}"):
            read_json(path)
    path.write_text('{"a": 1}')
    assert read_json(path) == {"a": 1}


def test_names_are_never_given_twice(tmp_path):
    scratch = Scratch(tmp_path)
    assert len({scratch.new() for _ in range(5)}) == 5
    scratch.close()


def test_what_the_dead_leave_behind_is_removed_and_the_living_are_left_alone(tmp_path):
    dead = tmp_path / ".partial/1-dead"
    dead.mkdir(parents=True)
    (dead / "half.mp4").write_bytes(b"half")
    living = Scratch(tmp_path)
    another = Scratch(tmp_path)
    assert not dead.exists()
    assert living.path.exists()
    living.close()
    another.close()


def test_a_lock_keeps_other_processes_out(tmp_path):
    code = "import fcntl,sys; fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    ask = [sys.executable, "-c", code, str(tmp_path / "lock")]
    with locked(tmp_path / "lock"):
        assert b"BlockingIOError" in subprocess.run(ask, capture_output=True).stderr
    subprocess.run(ask, check=True)


def client(server, folder, form, *flags):
    command = [sys.executable, "-m", "plugrl_env_client.cli", "dummy-v1", "--server-port", str(server.port)]
    command += ["--num-envs", "2", "--runner.max-episode-steps", str(STEPS), "--quiet"]
    command += ["--env.images", "front", "--env.image-size", "32"]
    command += ["--recorder.format", form, "--recorder.folder", str(folder), *flags]
    return subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})


def killed(fake_server, actions, folder, form, exchanges, *flags):
    """Kill a recording client after so many exchanges; the last episode that each env was seen in."""
    current = np.full(2, -1)
    started = []

    def script(peer):
        peer.greet()
        for _ in range(exchanges):
            infer = peer.infer()
            where = infer["data"]["states"]["obs"]
            current[where[:, 0].astype(int)] = where[:, 1]
            peer.act(actions(2, 1)(infer))
            peer.feedback()
        os.kill(started[0].pid, signal.SIGKILL)

    server = fake_server(script)
    process = client(server, folder, form, *flags)
    started.append(process)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    return current


def frames_of(video):
    import av

    with av.open(str(video)) as container:
        return sum(1 for _ in container.decode(video=0))


def read(folder, form):
    """{(env, episode): state [T(+1), 4]} of a recording of `dummy-v1`."""
    found = {}
    if form == "npz":
        for path in (folder / "npz").glob("*.npz"):
            with np.load(path) as data:
                found[int(data["env"]), int(data["episode"])] = data["states.obs"]
    elif form in ("frames", "video"):
        for path in (folder / form).iterdir():
            facts = json.loads((path / "episode.json").read_text())
            steps = np.arange(facts["length"] + 1)
            images = len(list((path / "front").iterdir())) if form == "frames" else frames_of(path / "front.mp4")
            found[facts["env"], facts["episode"]] = np.column_stack(
                [np.full(images, facts["env"]), np.full(images, facts["episode"]), steps[:images]]
            )
    elif form == "minari":
        import h5py

        data = folder / "minari/recorded-v0/data"
        if not (data / "metadata.json").exists():
            return {}
        count = json.loads((data / "metadata.json").read_text())["total_episodes"]
        with h5py.File(data / "main_data.hdf5") as file:
            for k in range(count):
                group = file[f"episode_{k}"]
                key = int(group.attrs["env"]), int(group.attrs["episode"])
                found[key] = group["observations/states/obs"][()]
    else:
        import pyarrow.parquet as pq

        root = folder / "lerobot"
        if not (root / "meta/info.json").exists():
            return {}
        frames = np.array(
            [x for p in sorted(root.glob("data/*/*")) for x in pq.read_table(p)["observation.state"].to_pylist()]
        )
        rows = [row for p in sorted(root.glob("meta/episodes/*/*")) for row in pq.read_table(p).to_pylist()]
        for row in rows[: json.loads((root / "meta/info.json").read_text())["total_episodes"]]:
            key = row["env_index"], row["env_episode"]
            found[key] = frames[row["dataset_from_index"] : row["dataset_to_index"]]
            found[key] = np.vstack([found[key], row["final_observation.state"]])
    return found


def check(found, current, every=1):
    """Every episode to record before the one that an env was in is there, whole."""
    assert {(env, episode) for env in range(len(current)) for episode in range(0, current[env], every)} <= set(found)
    for (env, episode), states in found.items():
        np.testing.assert_array_equal(states[:, :3], [[env, episode, t] for t in range(STEPS + 1)])
        assert episode <= current[env]


NEEDS = {"video": ["av"], "minari": ["h5py"], "lerobot": ["av", "pyarrow"]}


@pytest.mark.parametrize(
    ("form", "exchanges", "every"),
    [
        ("npz", 3 * EXCHANGES_OF_AN_EPISODE, 1),
        ("npz", 3 * EXCHANGES_OF_AN_EPISODE + 1, 2),
        ("frames", 3 * EXCHANGES_OF_AN_EPISODE + 1, 1),
        ("video", 3 * EXCHANGES_OF_AN_EPISODE + 1, 1),
        ("minari", 4 * EXCHANGES_OF_AN_EPISODE, 1),
        ("lerobot", 4 * EXCHANGES_OF_AN_EPISODE, 1),
    ],
)
def test_a_killed_process_loses_the_current_episodes_only(fake_server, actions, tmp_path, form, exchanges, every):
    for module in NEEDS.get(form, []):
        pytest.importorskip(module, reason=f"--recorder.format {form} needs its extra")
    current = killed(fake_server, actions, tmp_path, form, exchanges, "--recorder.every", str(every))
    assert current.min() >= 2
    before = read(tmp_path, form)
    check(before, current, every)
    (left,) = [path for path in (tmp_path / ".partial").iterdir() if path.is_dir()]

    def script(peer):
        peer.greet()
        peer.serve(actions(2, 1))

    process = client(fake_server(script), tmp_path, form, "--num-episodes", "2")
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, b"")
    assert not left.exists()
    if form in ("npz", "frames", "video"):
        assert len(list((tmp_path / form).iterdir())) == len(before) + 2
    else:
        check(read(tmp_path, form), current)


RECORD = """
import os, signal, sys
from pathlib import Path

import numpy as np
from plugrl_env_client.envs.dummy_v1 import DummyConfig, DummyEnv
from plugrl_env_client.recording.recorder import Recorder
from plugrl_env_client.recording.recorder_options import RecorderOptions

folder, form, steps, every = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def record(folder, begun, envs, episodes):
    n = max(envs) + 1
    env = DummyEnv(DummyConfig(images=("front",), image_size=32), n)
    recorder = Recorder(RecorderOptions(format=(form,), every=every, envs=envs), folder, seed=0)
    observer = recorder.observer(env)
    observer.started(0, n)
    rows = np.arange(n)
    observer.reset(rows, env.reset(0))
    for episode in range(episodes):
        for time in range(1, steps + 1):
            step = env.step(None)._replace(truncated=np.full(n, time == steps))
            observer.stepped(np.zeros((n, 1)), step, rows[:0])
        observer.reset(rows, env.reset_indices(rows))
        begun(episode + 1)
    observer.closed()
    recorder.close()
    assert recorder.counts.failure is None, recorder.counts.failure
"""

DIES_AT_EVERY_RENAME = (
    RECORD
    + """
def dies(folder, moment, at):
    folder.mkdir()
    replace, made = Path.replace, []

    def dying(self, target):
        made.append(target)
        if (moment, len(made)) == ("before", at):
            os.kill(os.getpid(), signal.SIGKILL)
        replace(self, target)
        if (moment, len(made)) == ("after", at):
            os.kill(os.getpid(), signal.SIGKILL)

    Path.replace = dying
    record(folder, lambda episode: (folder / "begun").write_text(str(episode)), (0, 1), 2)


for moment in ("before", "after"):
    at, killed = 0, True
    while killed:
        at += 1
        child = os.fork()
        if child == 0:
            dies(folder / f"{moment}-{at}", moment, at)
            os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
print(at - 1)
"""
)


GOES_ON = (
    RECORD
    + """
for one in folder.iterdir():
    record(one, lambda episode: None, (2, 3), 1)
"""
)


@pytest.mark.parametrize(
    ("form", "every"),
    [
        ("npz", 1),
        ("npz", 2),
        ("frames", 2),
        ("video", 1),
        ("minari", 1),
        pytest.param("lerobot", 1, marks=pytest.mark.slow),
    ],
)
def test_a_process_killed_at_any_rename_loses_the_current_episodes_only(tmp_path, form, every):
    """Before and after each rename of a run of two episodes; the last folder is of a run that was not killed.

    So it dies between any two files of a commit. Another run, of other envs, goes on in each of the folders.
    """
    for module in NEEDS.get(form, []):
        pytest.importorskip(module, reason=f"--recorder.format {form} needs its extra")

    def run(script):
        command = [sys.executable, "-c", script, str(tmp_path), form, str(STEPS), str(every)]
        return subprocess.run(command, check=True, capture_output=True, timeout=250).stdout

    renames = int(run(DIES_AT_EVERY_RENAME))
    assert renames >= 2
    before = {}
    for moment in ("before", "after"):
        for at in range(1, renames + 2):
            folder = tmp_path / f"{moment}-{at}"
            begun = int((folder / "begun").read_text()) if (folder / "begun").exists() else 0
            before[folder] = begun, read(folder, form)
            check(before[folder][1], np.full(2, begun), every)
    run(GOES_ON)
    for folder, (begun, found) in before.items():
        again = read(folder, form)
        assert set(again) == {*found, (2, 0), (3, 0)}
        check(again, np.array([begun, begun, 1, 1]), every)
        assert [path.name for path in (folder / ".partial").iterdir()] == ["lock"]
