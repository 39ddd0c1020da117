"""NPZ archives hold every transition, exactly."""

import numpy as np
import pytest


@pytest.mark.parametrize("resets_in_step", [False, True])
def test_every_transition_is_there(tmp_path, coded, resets_in_step):
    env = coded.Env(3, text=True, resets_in_step=resets_in_step)
    recorder = coded.record(tmp_path, "npz", env=env, steps=17)
    expected = [(i, e) for i in range(3) for e in coded.whole_episodes(i, 17, pause=int(resets_in_step))]
    names = [f"env-{i:04d}_episode-{e:06d}.npz" for i, e in expected]
    assert sorted(path.name for path in (tmp_path / "npz").iterdir()) == names
    for (i, e), name in zip(expected, names, strict=True):
        with np.load(tmp_path / "npz" / name) as data:
            length = coded.length(i, e)
            np.testing.assert_array_equal(data["states.where"], coded.states(i, e))
            np.testing.assert_array_equal(data["images.front"], coded.images(i, e))
            np.testing.assert_array_equal(data["actions"], coded.actions(i, e))
            np.testing.assert_array_equal(data["rewards"], coded.rewards(i, e))
            assert data["text"].tolist() == ["lift"] * (length + 1)
            assert data["terminated"].tolist() == [False] * (length - 1) + [e % 2 == 0]
            assert data["truncated"].tolist() == [False] * (length - 1) + [e % 2 == 1]
            assert (data["env"], data["episode"], data["success"]) == (i, e, e % 2 == 0)
            assert ("seed" in data) == (e == 0)
            assert e > 0 or data["seed"] == 7 + i
    counts = recorder.counts
    assert counts.episodes == len(expected)
    assert counts.frames == sum(coded.length(i, e) for i, e in expected)
    assert counts.size == sum(path.stat().st_size for path in (tmp_path / "npz").iterdir())
    assert counts.dropped_episodes == 0


def test_a_second_run_goes_on_counting(tmp_path, coded):
    for _ in range(2):
        coded.record(tmp_path, "npz", num_envs=1, steps=3)
    assert sorted(path.name for path in (tmp_path / "npz").iterdir()) == [
        "env-0000_episode-000000.npz",
        "env-0000_episode-000001.npz",
    ]


def test_nothing_is_said_of_what_is_not_there(tmp_path, coded):
    coded.record(tmp_path, "npz", env=coded.Env(1, size=None), steps=3)
    with np.load(tmp_path / "npz/env-0000_episode-000000.npz") as data:
        assert sorted(data) == [
            "actions",
            "env",
            "episode",
            "rewards",
            "seed",
            "states.where",
            "success",
            "terminated",
            "truncated",
        ]
