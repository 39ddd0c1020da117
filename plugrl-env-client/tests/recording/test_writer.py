"""The writer puts the rows of many envs together and writes what is whole, once."""

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import Observation
from plugrl_env_client.recording.counts import RecordingCounts
from plugrl_env_client.recording.durable import Scratch
from plugrl_env_client.recording.episode import Layout, Rows
from plugrl_env_client.recording.formats.episode_format import EpisodeFormat, Sink
from plugrl_env_client.recording.intake import Abandoned, Begun, Intake, Stepped
from plugrl_env_client.recording.writer import Writer


class Diary(EpisodeFormat):
    name = "diary"

    def __init__(self, folder, scratch):
        super().__init__(folder, scratch)
        self.commits = []
        self.discarded = []

    def begin(self):
        sink = Sink()
        sink.discard = lambda: self.discarded.append(sink)
        return sink

    def commit(self, finished):
        self.commits.append([(episode.env, episode.states["x"][:, 0].tolist()) for episode, _ in finished])
        return 10 * len(finished)


def rows(*values):
    return Rows({}, {"x": np.array(values, np.float64)[:, np.newaxis]}, np.full(len(values), "", "U1"))


def begun(envs, *values):
    return Begun(np.array(envs), np.zeros(len(envs), np.int64), rows(*values))


def stepped(envs, done, *values, success=None):
    count = len(envs)
    return Stepped(
        np.array(envs),
        np.zeros((count, 1)),
        np.ones(count),
        np.array(done),
        np.zeros(count, bool),
        None if success is None else np.array(success),
        rows(*values),
    )


@pytest.fixture
def write(tmp_path):
    scratch = Scratch(tmp_path)
    seen = Observation(images={}, states={"x": np.zeros((1, 1))}, text=("",))
    layout = Layout.of(seen, (), env_id="x", action_space=None, fps=1)

    def run(*items, diary=None):
        intake, counts = Intake(2**20), RecordingCounts()
        diary = diary or Diary(tmp_path, scratch)
        for item in items:
            intake.put(item, wait=False)
        intake.close()
        Writer(intake, [diary], layout, scratch, counts, lambda env: env).run()
        return diary, counts

    yield run
    scratch.close()


def test_rows_find_their_env(write):
    diary, counts = write(
        begun([4, 2], 40, 20),
        stepped([2, 4], [False, False], 21, 41),
        stepped([2, 4], [True, False], 22, 42),
        stepped([4], [True], 43),
    )
    assert diary.commits == [[(2, [20, 21, 22]), (4, [40, 41, 42, 43])]]  # what is there is written in one go
    assert (counts.episodes, counts.frames, counts.size) == (2, 5, 20)
    assert diary.discarded == []


def test_what_is_abandoned_or_unfinished_is_discarded(write):
    diary, counts = write(begun([0, 1], 0, 1), stepped([0, 1], [False, False], 0, 1), Abandoned(np.array([0])))
    assert (diary.commits, len(diary.discarded), counts.episodes) == ([], 2, 0)


def test_many_are_not_kept_waiting_for_all(write):
    envs = list(range(65))
    diary, _ = write(begun(envs, *envs), *(stepped([env], [True], env) for env in envs))
    assert [len(commit) for commit in diary.commits] == [64, 1]


def test_a_failure_is_told_and_everything_put_away(write, tmp_path, caplog):
    class Broken(Diary):
        def commit(self, finished):
            raise OSError("broken")

    scratch = Scratch(tmp_path)
    diary, counts = write(begun([0, 1], 0, 1), stepped([0], [True], 0), diary=Broken(tmp_path, scratch))
    scratch.close()
    assert counts.failure == "OSError: broken"
    assert len(diary.discarded) == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
