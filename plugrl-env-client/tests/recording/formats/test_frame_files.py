"""Snapshots: a PNG for every observation of an episode, and what is known of it."""

import json
import zlib

import numpy as np
import pytest
from plugrl_env_client.recording.recorder_options import RecordingError


def pixels(path):
    """Of a PNG whose rows are read by the filters none, left and above."""
    data = path.read_bytes()
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    size = int.from_bytes(data[33:37], "big")
    raw = np.frombuffer(zlib.decompress(data[41 : 41 + size]), np.uint8).reshape(height, -1)
    image = np.zeros((height, width, 3), np.uint8)
    for y, (kind, line) in enumerate(zip(raw[:, 0], raw[:, 1:].reshape(height, width, 3), strict=True)):
        if kind == 1:
            image[y] = np.cumsum(line, axis=0, dtype=np.uint8)
        else:
            image[y] = line + (image[y - 1] if kind == 2 and y else 0)
    return image


def test_every_observation_is_a_picture(tmp_path, coded):
    recorder = coded.record(tmp_path, "frames", num_envs=2, steps=8)
    episodes = [(i, e) for i in range(2) for e in coded.whole_episodes(i, 8)]
    folders = sorted((tmp_path / "frames").iterdir())
    assert [folder.name for folder in folders] == [f"env-{i:04d}_episode-{e:06d}" for i, e in episodes]
    for (i, e), folder in zip(episodes, folders, strict=True):
        files = sorted((folder / "front").iterdir())
        assert [file.name for file in files] == [f"{t:06d}.png" for t in range(coded.length(i, e) + 1)]
        np.testing.assert_array_equal(np.stack([pixels(file) for file in files]), coded.images(i, e))
    assert json.loads((folders[0] / "episode.json").read_text()) == {
        "env_id": "coded",
        "env": 0,
        "episode": 0,
        "seed": 7,
        "length": 3,
        "return": pytest.approx(coded.rewards(0, 0).sum()),
        "terminated": True,
        "truncated": False,
        "success": True,
    }
    assert recorder.counts.size == sum(
        path.stat().st_size for path in tmp_path.rglob("frames/*/**/*") if path.is_file()
    )


def test_an_env_without_images_is_refused(tmp_path, coded):
    with pytest.raises(RecordingError, match=r"--recorder\.format frames: coded shows no images"):
        coded.record(tmp_path, "frames", env=coded.Env(1, size=None))


def test_a_name_with_a_slash_is_one_folder(tmp_path, coded):
    coded.record(tmp_path, "frames", env=coded.Env(1, key="wrist/left"), steps=3)
    assert (tmp_path / "frames/env-0000_episode-000000/wrist.left/000003.png").exists()
