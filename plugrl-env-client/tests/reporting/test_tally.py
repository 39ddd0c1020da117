"""Counts, and what several processes count together."""

import numpy as np
import pytest
from plugrl_env_client.reporting.tally import RECENT_EPISODES, ConnectionRecord, Tally, together


def test_what_was_counted():
    tally = Tally()
    tally.steps = 12
    tally.episodes_ended(np.array([3.0, 5.0]))
    tally.episodes_ended(np.array([7.0]))
    tally.connection_over(ConnectionRecord(10, 0, 5, "closed"), 0.5)
    tally.connection_over(ConnectionRecord(4, 2, 2, "lost"), 0.25)
    tally.waiting = 0.25
    snapshot = tally.snapshot()
    assert (snapshot.steps, snapshot.episodes, snapshot.mean_return, snapshot.recent_return) == (12, 3, 5.0, 5.0)
    assert (snapshot.feedback_rows, snapshot.unconfirmed_rows, snapshot.waited) == (14, 2, 1.0)
    assert snapshot.as_json()["connections"][1] == {
        "feedback_rows": 4,
        "unconfirmed_rows": 2,
        "exchanges": 2,
        "ended": "lost",
    }


def test_a_connection_that_is_over_is_not_waited_on_twice():
    tally = Tally()
    tally.waiting = 0.25
    tally.connection_over(ConnectionRecord(1, 0, 1, "closed"), 0.25)
    assert tally.snapshot().waited == 0.25


def test_lesson_19_no_episode_no_mean():
    snapshot = Tally().snapshot()
    assert (snapshot.mean_return, snapshot.recent_return) == (None, None)
    assert snapshot.as_json()["mean_return"] is None


def test_the_recent_mean_forgets():
    tally = Tally()
    tally.episodes_ended(np.full(5, 1000.0))
    tally.episodes_ended(np.zeros(RECENT_EPISODES))
    assert tally.snapshot().recent_return == 0.0
    assert tally.snapshot().mean_return > 0


def test_several_processes_together():
    parts = []
    for process in range(2):
        tally = Tally()
        tally.steps = 10
        tally.reconnects = 1
        tally.episodes_ended(np.array([float(process)]))
        tally.connection_over(ConnectionRecord(5, 1, 5, "closed"), 0.0)
        parts.append(tally.snapshot())
    whole = together(parts)
    assert (whole.steps, whole.episodes, whole.mean_return, whole.groups) == (20, 2, 0.5, 2)
    assert (whole.feedback_rows, whole.unconfirmed_rows) == (10, 2)
    assert whole.reconnects == 2
    assert together([whole, parts[0]]).groups == 3, "parts may be several groups themselves"
    assert whole.seconds == pytest.approx(max(part.seconds for part in parts))


def test_nothing_together():
    assert (together([]).steps, together([]).wait_share) == (0, 0.0)
