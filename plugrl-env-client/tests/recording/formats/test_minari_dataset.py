"""Minari datasets: the files, and what the stock library reads from them where it is installed."""

import json

import numpy as np
import pytest
from plugrl_env_client.recording.recorder_options import RecordingError
from plugrl_protocol.spaces import DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace

h5py = pytest.importorskip("h5py", reason="the extra `minari` is not installed")

from plugrl_env_client.recording.formats import minari_dataset  # noqa: E402

DATA = "minari/recorded-v0/data"


@pytest.fixture
def minari(monkeypatch, tmp_path):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return pytest.importorskip("minari", reason="the stock reader is not installed")


def in_order(tmp_path):
    """(env, episode) of the dataset's episodes."""
    with h5py.File(tmp_path / DATA / "main_data.hdf5") as file:
        groups = [file[f"episode_{k}"] for k in range(len(file))]
        return [(int(group.attrs["env"]), int(group.attrs["episode"])) for group in groups]


def test_the_stock_library_reads_every_transition(tmp_path, coded, minari):
    coded.record(tmp_path, "minari", env=coded.Env(3, text=True), steps=13)
    dataset = minari.load_dataset("recorded-v0")
    episodes = list(dataset.iterate_episodes())
    expected = [(i, e) for i in range(3) for e in coded.whole_episodes(i, 13)]
    named = in_order(tmp_path)
    assert sorted(named) == expected
    assert dataset.total_episodes == len(expected)
    assert dataset.total_steps == sum(coded.length(i, e) for i, e in expected)
    for (i, e), episode in zip(named, episodes, strict=True):
        observations = episode.observations
        np.testing.assert_array_equal(observations["states"]["where"], coded.states(i, e))
        np.testing.assert_array_equal(observations["images"]["front"], coded.images(i, e))
        assert observations["text"] == ["lift"] * (coded.length(i, e) + 1)
        np.testing.assert_array_equal(episode.actions, coded.actions(i, e))
        np.testing.assert_array_equal(episode.rewards, coded.rewards(i, e))
        assert episode.terminations.tolist() == [False] * (coded.length(i, e) - 1) + [e % 2 == 0]
        assert episode.truncations.tolist() == [False] * (coded.length(i, e) - 1) + [e % 2 == 1]
        assert dataset.action_space.contains(episode.actions[0])
        assert dataset.observation_space["images"]["front"].contains(observations["images"]["front"][0])
    assert repr(episodes[0])
    first = next(dataset.storage.get_episode_metadata([0]))
    assert (first["seed"], first["total_steps"], first["success"]) == (7 + named[0][0], 3 + named[0][0], True)


def test_one_state_and_nothing_else_is_itself(tmp_path, coded, minari):
    coded.record(tmp_path, "minari", env=coded.Env(1, size=None), steps=3)
    dataset = minari.MinariDataset(tmp_path / DATA)
    assert dataset.observation_space.shape == (3,)
    np.testing.assert_array_equal(dataset[0].observations, coded.states(0, 0))


def test_a_second_run_adds_to_it(tmp_path, coded, minari):
    for _ in range(2):
        coded.record(tmp_path, "minari", num_envs=1, steps=7)
    dataset = minari.load_dataset("recorded-v0")
    assert in_order(tmp_path) == [(0, 0), (0, 1)] * 2
    assert [len(episode) for episode in dataset.iterate_episodes()] == [3, 4] * 2
    assert dataset.storage.get_size() > 0
    assert list(minari.list_local_datasets()) == ["recorded-v0"]


def test_processes_share_a_dataset(tmp_path, coded):
    coded.record_side_by_side(tmp_path, "minari", 20)
    assert sorted(in_order(tmp_path)) == [(i, e) for i in range(4) for e in coded.whole_episodes(i, 20)]
    with h5py.File(tmp_path / DATA / "main_data.hdf5") as file:
        for k, (i, e) in enumerate(in_order(tmp_path)):
            np.testing.assert_array_equal(file[f"episode_{k}/observations/states/where"], coded.states(i, e))


def test_another_env_is_refused(tmp_path, coded):
    coded.record(tmp_path, "minari", num_envs=1, steps=3)
    with pytest.raises(RecordingError, match="holds a dataset of another observation space"):
        coded.record(tmp_path, "minari", env=coded.Env(1, size=None), steps=3)
    env = coded.Env(1)
    env.action_space = DiscreteSpace(4)
    with pytest.raises(RecordingError, match="holds a dataset of another action space"):
        coded.record(tmp_path, "minari", env=env, steps=3)


def test_what_is_no_dataset_is_refused_before_the_run(tmp_path, coded):
    (tmp_path / DATA).mkdir(parents=True)
    (tmp_path / DATA / "metadata.json").write_text("{")
    with pytest.raises(RecordingError, match=r"metadata\.json: expected JSON"):
        coded.record(tmp_path, "minari", num_envs=1, steps=3)


def test_what_a_killed_process_left_half_done_is_replaced(tmp_path, coded, minari):
    coded.record(tmp_path, "minari", num_envs=1, steps=3)
    counted = (tmp_path / DATA / "metadata.json").read_text()
    coded.record(tmp_path, "minari", num_envs=1, steps=7)  # two more, of which nothing was counted
    (tmp_path / DATA / "metadata.json").write_text(counted)
    assert [len(episode) for episode in minari.load_dataset("recorded-v0")] == [3]
    coded.record(tmp_path, "minari", num_envs=1, steps=3)
    assert [len(episode) for episode in minari.load_dataset("recorded-v0")] == [3, 3]
    assert in_order(tmp_path) == [(0, 0), (0, 0)]


def test_any_action_is_taken_where_nothing_is_declared(tmp_path, coded, minari):
    env = coded.Env(1)
    env.action_space = None
    coded.record(tmp_path, "minari", env=env, steps=3)
    dataset = minari.load_dataset("recorded-v0")
    assert (dataset.action_space.shape, dataset.action_space.dtype) == ((2,), np.float32)
    assert json.loads(json.dumps(dataset.storage.read_raw_metadata(tmp_path / DATA)))["env_id"] == "coded"


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (DiscreteSpace(4, start=-1), np.int64(2)),
        (MultiDiscreteSpace(np.array([2, 3])), np.array([1, 2])),
        (MultiBinarySpace(3), np.array([0, 1, 1], np.int8)),
    ],
)
def test_spaces_are_read_as_gymnasium_spaces(minari, space, action):
    from minari.serialization import deserialize_space

    assert deserialize_space(minari_dataset._action_space(space)).contains(action)
