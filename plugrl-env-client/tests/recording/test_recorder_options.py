"""Mistakes in `--recorder.*` are named before anything runs."""

import importlib.util

import pytest
from plugrl_env_client.recording.recorder_options import RecorderOptions, RecordingError


def test_nothing_is_recorded_by_default():
    options = RecorderOptions()
    assert not options.on
    options.check(4, has_folder=False)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"every": 5}, r"--recorder\.every: expected --recorder\.format too"),
        ({"image_keys": ("front",)}, r"--recorder\.image-keys: expected --recorder\.format"),
        ({"format": ("npz",)}, r"expected --recorder\.folder or --exp-name"),
        ({"format": ("npz",), "folder": "x", "every": 0}, r"--recorder\.every 0: expected at least 1"),
        ({"format": ("npz",), "folder": "x", "fps": 0}, r"--recorder\.fps 0: expected at least 1"),
        ({"format": ("npz",), "folder": "x", "queue_mib": 0}, r"--recorder\.queue-mib 0"),
        (
            {"format": ("npz", "minari"), "folder": "x", "fps": 30},
            r"--recorder\.fps 30: only with --recorder\.format video or lerobot",
        ),
        (
            {"format": ("npz",), "folder": "x", "lerobot_images": "png"},
            r"--recorder\.lerobot-images png: only with --recorder\.format lerobot",
        ),
        ({"format": ("npz",), "folder": "x", "envs": (0, 4)}, r"--recorder\.envs 4: expected 0 to 3"),
    ],
)
def test_mistakes_are_named(settings, named):
    with pytest.raises(RecordingError, match=named):
        RecorderOptions(**settings).check(4, has_folder=False)


@pytest.mark.parametrize(
    ("settings", "missing", "extra"),
    [
        ({"format": ("video",)}, "av", "video"),
        ({"format": ("npz", "minari")}, "h5py", "minari"),
        ({"format": ("lerobot",)}, "pyarrow", "lerobot-dataset"),
        ({"format": ("lerobot",)}, "av", "lerobot-dataset"),
    ],
)
def test_a_missing_extra_is_told_with_its_install_command(monkeypatch, settings, missing, extra):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else object())
    for is_checkout, command in (
        (False, rf"pip install 'plugrl-env-client\[{extra}\]'"),
        (True, rf"uv run --extra {extra} plugrl-run-env-client \.\.\."),
    ):
        monkeypatch.setattr("plugrl_env_client.registration._is_checkout", lambda known=is_checkout: known)
        with pytest.raises(RecordingError, match=f"needs the extra {extra}: {command}$"):
            RecorderOptions(**settings).check(4, has_folder=True)


def test_a_lerobot_dataset_of_png_needs_no_video_library(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "av" else object())
    RecorderOptions(format=("lerobot",), lerobot_images="png").check(1, has_folder=True)
