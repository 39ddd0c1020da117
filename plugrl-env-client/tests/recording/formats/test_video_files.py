"""Videos, read back with PyAV."""

import json

import numpy as np
import pytest

av = pytest.importorskip("av", reason="the extra `video` is not installed")

from plugrl_env_client.recording.formats import video_files  # noqa: E402


def frames(path):
    with av.open(str(path)) as file:
        (stream,) = file.streams.video
        decoded = [(float(frame.time), frame.to_ndarray(format="rgb24")) for frame in file.decode(stream)]
        return stream.codec_context.name, [time for time, _ in decoded], np.stack([image for _, image in decoded])


@pytest.fixture(params=["libx264", "mpeg4"])
def codec(request, monkeypatch):
    if request.param == "libx264" and "libx264" not in av.codecs_available:
        pytest.skip("this FFmpeg has no libx264")
    monkeypatch.setattr(video_files, "codec_name", lambda: request.param)
    return {"libx264": "h264", "mpeg4": "mpeg4"}[request.param]


def test_a_video_shows_every_observation_at_its_time(tmp_path, coded, codec):
    coded.record(tmp_path, "video", num_envs=1, steps=8, fps=10)
    for e in coded.whole_episodes(0, 8):
        folder = tmp_path / f"video/env-0000_episode-{e:06d}"
        name, times, images = frames(folder / "front.mp4")
        assert name == codec
        assert times == pytest.approx([t / 10 for t in range(coded.length(0, e) + 1)])
        difference = np.abs(images.astype(int) - coded.images(0, e))
        assert difference.mean() < 3
        assert json.loads((folder / "episode.json").read_text())["length"] == coded.length(0, e)


def test_odd_sizes_are_made_even(tmp_path, coded, codec):
    coded.record(tmp_path, "video", env=coded.Env(1, size=(35, 39, 3)), steps=3)
    _, _, images = frames(tmp_path / "video/env-0000_episode-000000/front.mp4")
    assert images.shape == (4, 36, 40, 3)


def test_grey_stacks_are_shown_side_by_side(tmp_path, coded):
    coded.record(tmp_path, "video", env=coded.Env(1, size=(36, 40, 4)), steps=3)
    _, _, images = frames(tmp_path / "video/env-0000_episode-000000/front.mp4")
    assert images.shape == (4, 36, 160, 3)


def test_unfinished_videos_leave_nothing(tmp_path, coded):
    coded.record(tmp_path, "video", num_envs=1, steps=2)
    assert not (tmp_path / "video").exists()
    assert [path.name for path in (tmp_path / ".partial").iterdir()] == ["lock"]


def test_pixel_format():
    assert video_files.pixel_format(10, 12) == "yuv420p"
    assert video_files.pixel_format(10, 13) == ("yuv444p" if video_files.codec_name() == "libx264" else "yuv420p")
