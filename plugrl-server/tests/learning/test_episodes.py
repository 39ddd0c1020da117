"""What `rollout/*` says: means of what is known, nothing where nothing is (lesson 19)."""

import math

import numpy as np
import pytest
from plugrl_server.learning.episodes import EpisodeMetrics, has_figures, is_finished_episode


def recorded(*episodes):
    metrics = EpisodeMetrics()
    for episode in episodes:
        metrics.record(episode)
    metrics.note_finished(len(episodes))
    return metrics.metrics()


def test_lesson_19_returns_of_3_5_7_have_the_mean_5():
    found = recorded({"r": 3, "l": 10, "s": True}, {"r": 5, "l": 20, "s": False}, {"r": 7, "l": 30, "s": False})
    assert found == {"rollout/reward": 5, "rollout/length": 20, "rollout/success": pytest.approx(1 / 3)}


def test_lesson_19_no_ended_episode_means_no_metric():
    assert recorded() == {}


def test_lesson_19_ended_episodes_without_figures_read_zero():
    metrics = EpisodeMetrics()
    metrics.note_finished(2)
    assert metrics.metrics() == {"rollout/reward": 0.0, "rollout/length": 0.0, "rollout/success": 0.0}


def test_a_figure_that_no_episode_has_is_absent_beside_others():
    assert recorded({"r": 4, "l": 2}) == {"rollout/reward": 4, "rollout/length": 2}


def test_an_unfinished_episode_is_left_out():
    assert recorded({"r": 1, "mask": True}, {"r": 100, "mask": False}) == {"rollout/reward": 1}


@pytest.mark.parametrize("value", [np.float32(2), np.array(2), np.array([2.0]), 2, True + 1])
def test_scalars_of_every_kind_are_taken(value):
    assert recorded({"r": value}) == {"rollout/reward": 2}


@pytest.mark.parametrize("value", [np.nan, np.inf, "many", None, np.array([1, 2]), {}])
def test_what_is_no_finite_number_is_left_out(value):
    assert recorded({"r": value, "l": 3}) == {"rollout/length": 3}


def test_clear_forgets():
    metrics = EpisodeMetrics()
    metrics.record({"r": 1})
    metrics.note_finished(1)
    metrics.clear()
    assert metrics.metrics() == {}


@pytest.mark.parametrize(
    ("info", "finished"),
    [
        ({}, True),
        ({"episode": {}}, True),
        ({"episode": {"mask": True}}, True),
        ({"episode": {"mask": np.bool_(False)}}, False),
        ({"episode": {"mask": np.array([False])}}, False),
        ({"episode": 3}, True),
    ],
)
def test_a_missing_mask_counts_as_true(info, finished):
    assert is_finished_episode(info) is finished


@pytest.mark.parametrize(
    ("info", "told"),
    [
        ({}, False),
        ({"episode": {}}, False),
        ({"episode": {"mask": True}}, False),
        ({"episode": 3.0}, False),
        ({"episode": {"r": 1.0}}, True),
        ({"episode": {"s": True, "mask": False}}, False),
    ],
)
def test_has_figures(info, told):
    assert has_figures(info) is told


def test_recorded_episodes_are_counted_for_good():
    episodes = EpisodeMetrics()
    episodes.record({"r": 1.0})
    episodes.record({"r": 1.0, "mask": False})
    episodes.clear()
    episodes.record({"r": math.nan})
    assert episodes.recorded == 2
