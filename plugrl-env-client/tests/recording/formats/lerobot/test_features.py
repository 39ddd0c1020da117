"""Statistics against NumPy, and what is said of columns."""

import dataclasses

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import Observation
from plugrl_env_client.recording.episode import Episode, Layout
from plugrl_env_client.recording.formats.lerobot.features import (
    ImageStats,
    column_stats,
    columns,
    declared_features,
    features,
    shown_shape,
    together,
)
from plugrl_protocol.spaces import DiscreteSpace

RNG = np.random.default_rng(0)


def episode():
    seen = Observation(
        images={"cam/left": np.zeros((1, 8, 6, 1), np.uint8)},
        states={"pose": np.zeros((1, 2), np.float32), "grip": np.zeros((1, 1), np.float32)},
        text=("",),
    )
    layout = Layout.of(seen, (), env_id="arm", action_space=None, fps=10)
    states = {"pose": np.arange(6, dtype=np.float32).reshape(3, 2), "grip": np.array([[7], [8], [9]], np.float32)}
    no, yes = np.array([False, False]), np.array([False, True])
    actions = np.array([2, 3])
    return Episode(0, 0, None, layout, {}, states, np.array([""] * 3), actions, np.array([0.5, 1]), no, yes, None)


def test_states_are_joined_and_actions_are_rows():
    found = columns(episode())
    np.testing.assert_array_equal(found["observation.state"], np.array([[0, 1, 7], [2, 3, 8]], np.float32))
    assert found["observation.state"].dtype == np.float32
    assert found["action"].tolist() == [[2], [3]]
    assert found["next.done"].tolist() == found["next.truncated"].tolist() == [[False], [True]]


def test_features_describe_the_columns():
    found = features(episode(), {"video.codec": "h264"})
    assert found["observation.images.cam.left"] == {
        "dtype": "video",
        "shape": [8, 6, 3],
        "names": ["height", "width", "channels"],
        "info": {"video.height": 8, "video.width": 6, "video.codec": "h264"},
    }
    assert features(episode(), None)["observation.images.cam.left"]["dtype"] == "image"
    assert found["observation.state"] == {"dtype": "float32", "shape": [3], "names": ["pose.0", "pose.1", "grip.0"]}
    assert found["action"] == {"dtype": "int64", "shape": [1], "names": None}
    assert shown_shape((8, 6, 4)) == [8, 24, 3]


@pytest.mark.parametrize("space", [None, DiscreteSpace(4)])
def test_some_are_known_before_the_first_step(space):
    one = episode()
    layout = dataclasses.replace(one.layout, action_space=space)
    known = declared_features(layout)
    assert known.keys() == {"observation.state"} | ({"action"} if space else set())
    assert known.items() <= features(one, None).items()
    assert declared_features(dataclasses.replace(layout, states={}))["observation.state"] is None


def test_statistics_of_parts_are_those_of_the_whole():
    parts = [RNG.normal(size=(n, 3)) for n in (1, 5, 40)]
    merged = together([column_stats(part) for part in parts])
    whole = column_stats(np.concatenate(parts))
    assert merged.keys() == whole.keys()
    for kind, values in whole.items():
        np.testing.assert_allclose(merged[kind], values)


@pytest.mark.parametrize(("size", "step"), [(16, 1), (200, 3)])
def test_image_statistics_are_those_of_a_grid_of_pixels(size, step):
    images = RNG.integers(0, 256, (4, size, size, 3), np.uint8)
    running = ImageStats()
    for image in images:
        running.add(image)
    pixels = images[:, ::step, ::step].reshape(-1, 3) / 255
    found = running.stats()
    for kind in ("min", "max", "mean", "std"):
        assert found[kind].shape == (3, 1, 1)
        np.testing.assert_allclose(found[kind][:, 0, 0], getattr(pixels, kind)(axis=0))
    assert found["count"] == [4]
