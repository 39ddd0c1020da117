"""Figures of episodes against those of numpy, and against themselves when they come in parts."""

import numpy as np
import pytest
from plugrl_env_client.reporting.figures import EpisodeFigures, Spread, side_by_side


def rows(values):
    return np.array(values, np.float64)


def test_each_env_has_its_own_figures():
    spread = Spread.of(3, np.array([0, 2, 0, 0]), rows([1.0, -5.0, 2.0, 6.0]))
    assert spread.as_json(0) == {"mean": 3.0, "std": pytest.approx(np.std([1, 2, 6])), "min": 1.0, "max": 6.0}
    assert spread.as_json(1) is None
    assert spread.as_json(2) == {"mean": -5.0, "std": 0.0, "min": -5.0, "max": -5.0}


def test_what_comes_in_parts_gives_the_figures_of_the_whole():
    rng = np.random.default_rng(0)
    envs, values = rng.integers(0, 4, 500), 1e6 + rng.normal(size=500)
    parts = Spread.of(5, envs[:0], values[:0])
    for part in np.split(np.arange(500), [3, 3, 200]):
        parts = parts.merged(Spread.of(5, envs[part], values[part]))
    for env in range(4):
        mine = values[envs == env]
        expected = {"mean": mine.mean(), "std": mine.std(), "min": mine.min(), "max": mine.max()}
        assert parts.as_json(env) == pytest.approx(expected, rel=1e-9)
    assert parts.as_json(4) is None
    assert parts.total().as_json(0) == pytest.approx(
        {"mean": values.mean(), "std": values.std(), "min": values.min(), "max": values.max()}, rel=1e-9
    )


def test_no_env_has_no_figures():
    assert EpisodeFigures.none(0).total().as_json() == {
        "episodes": 0,
        "returns": None,
        "lengths": None,
        "successes": None,
        "success_rate": None,
    }
    assert len(side_by_side([]).episodes) == 0


def test_what_json_cannot_hold_is_null():
    assert Spread.of(1, np.array([0]), rows([np.inf])).as_json(0) == {
        "mean": None,
        "std": None,
        "min": None,
        "max": None,
    }


def episodes(num_envs, envs, judged, successes):
    count = np.arange(len(envs))
    return EpisodeFigures.of(num_envs, np.array(envs), count + 0.5, count, np.array(judged), np.array(successes))


def test_lesson_19_success_is_counted_where_it_is_known():
    figures = episodes(3, [0, 0, 0, 1], [True, True, False, False], [True, False, True, False])
    known, unknown, idle = (figures.as_json(env) for env in range(3))
    assert (known["episodes"], known["successes"], known["success_rate"]) == (3, 1, 0.5)
    assert (unknown["episodes"], unknown["successes"], unknown["success_rate"]) == (1, None, None)
    assert (idle["episodes"], idle["successes"], idle["returns"]) == (0, None, None)
    assert figures.total().as_json()["success_rate"] == 0.5


def test_envs_side_by_side_keep_their_order():
    both = side_by_side([episodes(2, [1], [True], [True]), episodes(1, [0, 0], [True, True], [False, True])])
    assert both.episodes.tolist() == [0, 1, 2]
    assert [both.as_json(env)["successes"] for env in range(3)] == [None, 1, 1]
    assert both.total().as_json()["successes"] == 2
    later = both.merged(both)
    assert later.episodes.tolist() == [0, 2, 4]
    assert later.as_json(2)["success_rate"] == 0.5
