"""Layouts, copied rows and episodes in the making."""

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import Observation
from plugrl_env_client.recording.episode import ARRAY_BYTES, EpisodeInTheMaking, Layout, Rows
from plugrl_env_client.recording.recorder_options import RecordingError

IMAGES = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)


def observation(text=("", "")):
    return Observation(
        images={"front": IMAGES.copy(), "wrist": IMAGES[:, :2, :2, :1].copy()},
        states={"pose": np.array([[1.0, 2], [3, 4]]), "grip": np.array([[5], [6]])},
        text=text,
    )


def layout(seen=None, keys=()):
    return Layout.of(seen or observation(), keys, env_id="arm", action_space=None, fps=10)


def test_a_layout_says_what_is_there():
    seen = layout()
    assert seen.images == {"front": (4, 5, 3), "wrist": (2, 2, 1)}
    assert seen.states == {"pose": (2, np.float64), "grip": (1, np.int64)}
    assert not seen.has_text
    assert layout(observation(("", "pick"))).has_text
    assert list(layout(keys=("wrist",)).images) == ["wrist"]


def test_an_env_without_images_says_so():
    bare = Observation(images={}, states={"pose": np.zeros((1, 2))}, text=("",))
    with pytest.raises(RecordingError, match="arm has no such image; it shows: none"):
        layout(bare, ("front",))


def test_rows_are_copies():
    seen = observation()
    rows = Rows.copy(seen, np.array([1]), ["front"])
    assert rows.nbytes == 60 + 16 + 8 + rows.text.nbytes + 4 * ARRAY_BYTES
    seen.images["front"][:] = 0
    seen.states["pose"][:] = 0
    np.testing.assert_array_equal(rows.images["front"], IMAGES[1:])
    np.testing.assert_array_equal(rows.states["pose"], [[3, 4]])


def test_text_out_of_nowhere_is_refused():
    rows = Rows.copy(observation(("", "pick")), np.array([0, 1]), [])
    with pytest.raises(RecordingError, match="arm began to give text"):
        layout().check(rows)
    layout(observation(("a", "b"))).check(rows)


@pytest.mark.parametrize("spooled", [True, False])
def test_an_episode_is_put_together(tmp_path, spooled):
    seen = layout(observation(("pick", "")))
    making = EpisodeInTheMaking(3, 7, 11, seen, tmp_path if spooled else None)
    rows = Rows.copy(observation(("pick", "up")), np.array([0, 1]), ["front", "wrist"])
    np.testing.assert_array_equal(making.show(rows, 0)["front"], IMAGES[0])
    for row, last in ((1, False), (0, True)):
        making.step(np.array([row, 0.5], np.float32), 0.1 + row, False, last)
        making.show(rows, row)
    making.success = False
    episode = making.finish()
    making.close()
    assert list(tmp_path.iterdir()) == []  # the images' file has no name
    assert len(episode) == 2
    np.testing.assert_array_equal(episode.states["pose"], [[1, 2], [3, 4], [1, 2]])
    np.testing.assert_array_equal(episode.actions, np.array([[1, 0.5], [0, 0.5]], np.float32))
    assert episode.text.tolist() == ["pick", "up", "pick"]
    assert sorted(episode.images) == (["front", "wrist"] if spooled else [])
    if spooled:
        np.testing.assert_array_equal(episode.images["front"], IMAGES[[0, 1, 0]])
    assert episode.facts() == {
        "env_id": "arm",
        "env": 3,
        "episode": 7,
        "seed": 11,
        "length": 2,
        "return": pytest.approx(1.2),
        "terminated": False,
        "truncated": True,
        "success": False,
    }
