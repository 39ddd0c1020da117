"""What lerobot itself reads. It caps torch, so it is in no environment of the workspace: `.ci/recording` runs this."""

import numpy as np
import pytest

pytest.importorskip("lerobot", reason="lerobot stays out of the workspace: bash .ci/recording lerobot")
pytestmark = pytest.mark.filterwarnings("default")

from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: E402


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """The arrow cache of `datasets` goes by file name and size: a test must not see another's."""
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def load(tmp_path, **settings):
    """By PyAV: torchcodec, the default, wants an FFmpeg of the system's."""
    return LeRobotDataset("plugrl/recorded", root=tmp_path / "lerobot", video_backend="pyav", **settings)


def levels(image):
    """Mean of a float [3,h,w] picture, in 0..255."""
    return float(image.mean()) * 255


@pytest.mark.parametrize(("kept", "beside"), [("video", ()), ("video", ("npz",)), ("png", ())])
def test_every_frame_is_read(tmp_path, coded, kept, beside):
    coded.record(tmp_path, "lerobot", *beside, env=coded.Env(2, text=True), steps=12, lerobot_images=kept, fps=10)
    dataset = load(tmp_path)
    order = [(row["env_index"], row["env_episode"]) for row in dataset.meta.episodes]
    assert sorted(order) == [(i, e) for i in range(2) for e in coded.whole_episodes(i, 12)]
    assert (dataset.num_episodes, dataset.fps) == (len(order), 10)
    index = 0
    for i, e in order:
        for t in range(coded.length(i, e)):
            item = dataset[index]
            index += 1
            np.testing.assert_allclose(item["observation.state"], coded.state(i, e, t), rtol=1e-6)
            np.testing.assert_array_equal(item["action"], coded.action(i, e, t))
            assert float(item["next.reward"]) == pytest.approx(coded.reward(i, e, t))
            assert bool(item["next.done"]) == (t == coded.length(i, e) - 1)
            assert item["task"] == "lift"
            picture, image = item["observation.images.front"], coded.image(i, e, t)
            assert tuple(picture.shape) == (3, 36, 40)
            if kept == "png":
                np.testing.assert_array_equal((picture.numpy() * 255).round().transpose(1, 2, 0), image)
            else:
                assert levels(picture) == pytest.approx(image.mean(), abs=2)
    assert index == len(dataset)
    np.testing.assert_allclose(dataset.meta.stats["action"]["max"], [1.5, max(e for _, e in order)])


def test_one_number_wide_columns_and_windows_in_time(tmp_path, coded):
    env = coded.Env(1, size=None)
    env.action_space = None
    env.actions = lambda: np.array([env.time[0]])
    coded.record(tmp_path, "lerobot", env=env, steps=7, fps=10)
    dataset = load(tmp_path, delta_timestamps={"action": [0.0, 0.1]})
    assert [item["action"].tolist() for item in dataset] == [[0, 1], [1, 2], [2, 2], [0, 1], [1, 2], [2, 3], [3, 3]]


def test_rows_that_do_not_count_are_not_read(tmp_path, coded):
    coded.record(tmp_path, "lerobot", num_envs=1, steps=3)
    counted = (tmp_path / "lerobot/meta/info.json").read_text()
    coded.record(tmp_path, "lerobot", num_envs=1, steps=7)
    (tmp_path / "lerobot/meta/info.json").write_text(counted)
    dataset = load(tmp_path)
    assert (dataset.num_episodes, len(dataset)) == (1, 3)
    assert float(dataset[2]["next.reward"]) == pytest.approx(coded.reward(0, 0, 2))


def test_a_loader_goes_over_it(tmp_path, coded):
    from torch.utils.data import DataLoader

    coded.record(tmp_path, "lerobot", num_envs=2, steps=12)
    dataset = load(tmp_path)
    seen = sum(len(batch["index"]) for batch in DataLoader(dataset, batch_size=4, shuffle=True))
    assert seen == len(dataset)
