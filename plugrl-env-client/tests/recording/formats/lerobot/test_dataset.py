"""LeRobot datasets: the files as any reader of parquet sees them. What lerobot reads is in test_with_lerobot.py."""

import dataclasses
import json

import numpy as np
import pytest
from plugrl_env_client.recording.recorder_options import RecordingError
from plugrl_protocol.spaces import DiscreteSpace

pytest.importorskip("av", reason="the extra `lerobot-dataset` is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="the extra `lerobot-dataset` is not installed")


def rows(folder):
    return [row for path in sorted(folder.glob("*/*.parquet")) for row in pq.read_table(path).to_pylist()]


def info(tmp_path):
    return json.loads((tmp_path / "lerobot/meta/info.json").read_text())


def check(tmp_path, coded, text):
    """Every row of the data is where its numbers say."""
    root = tmp_path / "lerobot"
    episodes, frames = rows(root / "meta/episodes"), rows(root / "data")
    assert [row["index"] for row in frames] == list(range(len(frames)))
    assert [row["episode_index"] for row in episodes] == list(range(len(episodes)))
    for episode in episodes:
        i, e = episode["env_index"], episode["env_episode"]
        length = coded.length(i, e)
        mine = frames[episode["dataset_from_index"] : episode["dataset_to_index"]]
        assert (episode["length"], len(mine)) == (length, length)
        assert episode["tasks"] == [text]
        assert episode["seed"] == (7 + i if e == 0 else None)
        assert (episode["terminated"], episode["truncated"]) == (e % 2 == 0, e % 2 == 1)
        np.testing.assert_array_equal([row["observation.state"] for row in mine], coded.states(i, e)[:-1])
        np.testing.assert_array_equal(episode["final_observation.state"], coded.states(i, e)[-1])
        np.testing.assert_array_equal([row["action"] for row in mine], coded.actions(i, e))
        np.testing.assert_array_equal([row["next.reward"] for row in mine], coded.rewards(i, e))
        assert [row["next.done"] for row in mine] == [False] * (length - 1) + [True]
        assert [row["frame_index"] for row in mine] == list(range(length))
        assert [row["timestamp"] for row in mine] == pytest.approx([t / 30 for t in range(length)])
        assert {row["episode_index"] for row in mine} == {episode["episode_index"]}
    return [(row["env_index"], row["env_episode"]) for row in episodes]


def test_every_transition_is_there(tmp_path, coded):
    recorder = coded.record(tmp_path, "lerobot", env=coded.Env(3, text=True), steps=13)
    expected = [(i, e) for i in range(3) for e in coded.whole_episodes(i, 13)]
    assert sorted(check(tmp_path, coded, "lift")) == expected
    said = info(tmp_path)
    assert said["codebase_version"] == "v3.0"
    assert said["total_episodes"] == recorder.counts.episodes == len(expected)
    assert said["total_frames"] == recorder.counts.frames
    assert said["splits"] == {"train": f"0:{len(expected)}"}
    assert said["features"]["observation.images.front"]["shape"] == [36, 40, 3]
    videos = sorted((tmp_path / "lerobot/videos/observation.images.front/chunk-000").iterdir())
    assert [path.name for path in videos] == [f"file-{k:03d}.mp4" for k in range(len(expected))]


def test_statistics_are_those_of_all_rows(tmp_path, coded):
    coded.record(tmp_path, "lerobot", num_envs=2, steps=5)
    coded.record(tmp_path, "lerobot", num_envs=2, steps=9)
    frames = rows(tmp_path / "lerobot/data")
    stats = json.loads((tmp_path / "lerobot/meta/stats.json").read_text())
    for name in ("observation.state", "action", "next.reward", "next.done"):
        values = np.array([np.atleast_1d(row[name]) for row in frames], np.float64)
        assert stats[name]["count"] == [len(frames)]
        for kind in ("min", "max", "mean", "std"):
            np.testing.assert_allclose(stats[name][kind], getattr(values, kind)(axis=0), atol=1e-9)
    front = stats["observation.images.front"]
    assert np.shape(front["mean"]) == (3, 1, 1)
    assert 0 <= front["min"][0][0][0] < front["mean"][0][0][0] < front["max"][0][0][0] <= 1


def test_a_second_run_adds_to_it(tmp_path, coded):
    for _ in range(2):
        coded.record(tmp_path, "lerobot", num_envs=1, steps=7)
    assert check(tmp_path, coded, "coded") == [(0, 0), (0, 1)] * 2
    assert len(list((tmp_path / "lerobot/data").glob("*/*"))) == 1


def test_processes_share_a_dataset(tmp_path, coded):
    coded.record_side_by_side(tmp_path, "lerobot", 12)
    expected = [(i, e) for i in range(4) for e in coded.whole_episodes(i, 12)]
    assert sorted(check(tmp_path, coded, "coded")) == expected
    stats = json.loads((tmp_path / "lerobot/meta/stats.json").read_text())
    assert stats["action"]["count"] == [sum(coded.length(i, e) for i, e in expected)]


def test_what_a_killed_process_left_half_done_is_replaced(tmp_path, coded):
    coded.record(tmp_path, "lerobot", num_envs=1, steps=3)
    counted = (tmp_path / "lerobot/meta/info.json").read_text()
    coded.record(tmp_path, "lerobot", num_envs=1, steps=7)  # two more, of which nothing was counted
    (tmp_path / "lerobot/meta/info.json").write_text(counted)
    coded.record(tmp_path, "lerobot", num_envs=1, steps=3)
    assert check(tmp_path, coded, "coded") == [(0, 0), (0, 0)]
    assert info(tmp_path)["total_frames"] == 6
    stats = json.loads((tmp_path / "lerobot/meta/stats.json").read_text())
    assert stats["action"]["count"] == [6]
    assert stats["observation.state"]["max"] == pytest.approx([1 / 3, 1 / 3, 2 + 1 / 3])


def test_images_in_the_tables_are_exact(tmp_path, coded):
    pillow = pytest.importorskip("PIL.Image", reason="reads the PNG")
    import io

    coded.record(tmp_path, "lerobot", num_envs=1, steps=3, lerobot_images="png")
    pictures = [row["observation.images.front"]["bytes"] for row in rows(tmp_path / "lerobot/data")]
    read = np.stack([np.asarray(pillow.open(io.BytesIO(data))) for data in pictures])
    np.testing.assert_array_equal(read, coded.images(0, 0)[:-1])
    assert not (tmp_path / "lerobot/videos").exists()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"fps": 10}, r"--recorder\.fps 10: .* of 30"),
        ({"size": (30, 40, 3)}, "other images"),
        ({"size": None}, "other images"),
        ({"lerobot_images": "png"}, "keeps them in another way"),
    ],
)
def test_another_kind_is_refused(tmp_path, coded, settings, named):
    coded.record(tmp_path, "lerobot", num_envs=1, steps=3)
    env = coded.Env(1, size=settings.pop("size")) if "size" in settings else None
    with pytest.raises(RecordingError, match=named):
        coded.record(tmp_path, "lerobot", num_envs=1, steps=3, env=env, **settings)


def test_each_video_is_described_as_it_is(tmp_path, coded):
    av = pytest.importorskip("av")
    env = coded.Env(1, size=(36, 40, 3))
    look = env.look
    env.look = lambda: dataclasses.replace(
        look(), images={"even": env.images["front"], "odd": env.images["front"][:, 1:, 1:]}
    )
    coded.record(tmp_path, "lerobot", env=env, steps=3)
    for name in ("even", "odd"):
        feature = f"observation.images.{name}"
        said = info(tmp_path)["features"][feature]["info"]
        with av.open(str(tmp_path / f"lerobot/videos/{feature}/chunk-000/file-000.mp4")) as file:
            stream = file.streams.video[0]
            assert (said["video.pix_fmt"], said["video.codec"]) == (stream.pix_fmt, stream.codec_context.name)
            assert (said["video.height"], said["video.width"]) == (stream.height, stream.width)


def wider(env):
    """Shows a state more."""
    look = env.look
    env.look = lambda: dataclasses.replace(look(), states={"where": env.state, "more": env.state})


def declares_another_action(env):
    env.action_space = DiscreteSpace(4)


@pytest.mark.parametrize("change", [wider, declares_another_action])
def test_other_columns_are_refused_before_the_run(tmp_path, coded, change):
    coded.record(tmp_path, "lerobot", num_envs=1, steps=3)
    env = coded.Env(1)
    change(env)
    with pytest.raises(RecordingError, match="other states or actions"):
        coded.record(tmp_path, "lerobot", env=env, steps=0)


@pytest.mark.parametrize(
    ("content", "named"), [("{", "expected JSON"), ('{"codebase_version": "v2.1"}', r"expected .* v3\.0, got v2\.1")]
)
def test_what_is_no_dataset_of_this_layout_is_refused_before_the_run(tmp_path, coded, content, named):
    (tmp_path / "lerobot/meta").mkdir(parents=True)
    (tmp_path / "lerobot/meta/info.json").write_text(content)
    with pytest.raises(RecordingError, match=rf"info\.json: {named}"):
        coded.record(tmp_path, "lerobot", num_envs=1, steps=0)


def test_tables_hold_what_the_features_say_whatever_else_is_recorded(tmp_path, coded):
    coded.record(tmp_path, "npz", "lerobot", num_envs=1, steps=3)  # npz has the images put together, lerobot does not
    features = info(tmp_path)["features"]
    expected = {name for name, feature in features.items() if feature["dtype"] != "video"}
    assert {name for row in rows(tmp_path / "lerobot/data") for name in row} == expected
    assert features["observation.images.front"]["dtype"] == "video"


def test_other_actions_end_the_recording(tmp_path, coded):
    coded.record(tmp_path, "lerobot", num_envs=1, steps=3)
    env = coded.Env(1)
    env.actions = lambda: np.zeros((1, 5), np.float32)
    recorder = coded.record(tmp_path, "lerobot", env=env, steps=3)
    assert "other states or actions" in recorder.counts.failure
    assert info(tmp_path)["total_episodes"] == 1
