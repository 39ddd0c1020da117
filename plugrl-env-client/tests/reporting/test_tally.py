"""Counts, and what several groups and several lives count together."""

import types

import numpy as np
import pytest
from plugrl_env_client.pacing.counts import PacingCounts
from plugrl_env_client.reporting import tally as tally_module
from plugrl_env_client.reporting.tally import RECENT_EPISODES, ConnectionRecord, Tally, nothing_yet, together


def ended(tally, *returns, envs=None, lengths=None, successes=None):
    count = len(returns)
    tally.episodes_ended(
        np.arange(count) if envs is None else np.array(envs),
        np.array(returns, np.float64),
        np.full(count, 10) if lengths is None else np.array(lengths),
        None if successes is None else np.array(successes),
    )


def test_what_was_counted():
    tally = Tally(2)
    tally.steps = 12
    ended(tally, 3.0, 5.0, successes=[True, False])
    ended(tally, 7.0, envs=[1], lengths=[4])
    tally.connection_over(ConnectionRecord(10, 0, 5, "closed"), 0.5)
    tally.connection_over(ConnectionRecord(4, 2, 2, "lost"), 0.25)
    snapshot = tally.snapshot()
    assert (snapshot.steps, snapshot.episodes, snapshot.mean_return, snapshot.recent_return) == (12, 3, 5.0, 5.0)
    assert (snapshot.feedback_rows, snapshot.unconfirmed_rows, snapshot.waited) == (14, 2, 0.75)
    summary = snapshot.as_json()
    assert summary["connections"][1] == {
        "feedback_rows": 4,
        "unconfirmed_rows": 2,
        "exchanges": 2,
        "ended": "lost",
    }
    assert summary["lengths"] == pytest.approx({"mean": 8.0, "std": np.std([10, 10, 4]), "min": 4.0, "max": 10.0})
    assert (summary["successes"], summary["success_rate"]) == (1, 0.5)
    first, second = snapshot.envs_as_json(7)
    assert (first["env"], first["episodes"], first["steps"], first["returns"]["mean"]) == (7, 1, 6, 3.0)
    assert (second["env"], second["episodes"], second["returns"]["max"], second["successes"]) == (8, 2, 7.0, 0)


def test_the_open_connection_counts_as_it_stands():
    tally = Tally(1)
    tally.connection_open(types.SimpleNamespace(feedback_rows=9, unconfirmed_rows=1, exchanges=9, waited=0.25))
    snapshot = tally.snapshot()
    assert snapshot.connections == (ConnectionRecord(9, 1, 9, "open"),)
    assert snapshot.waited == 0.25
    tally.connection_over(ConnectionRecord(10, 0, 10, "closed"), 0.25)
    assert tally.snapshot().connections == (ConnectionRecord(10, 0, 10, "closed"),)
    assert tally.snapshot().waited == 0.25


def test_an_env_that_resets_itself_runs_fewer_steps():
    tally = Tally(3)
    tally.steps = 3 + 2 + 3
    tally.reset_in_step(np.array([1]))
    assert tally.snapshot().env_steps.tolist() == [3, 2, 3]


def test_lesson_19_no_episode_no_mean():
    snapshot = Tally(1).snapshot()
    assert (snapshot.mean_return, snapshot.recent_return) == (None, None)
    assert snapshot.as_json()["returns"] is None


def test_the_recent_mean_forgets():
    tally = Tally(RECENT_EPISODES)
    ended(tally, *[1000.0] * 5)
    ended(tally, *[0.0] * RECENT_EPISODES)
    assert tally.snapshot().recent_return == 0.0
    assert tally.snapshot().mean_return > 0


def test_episodes_are_taken_in_even_if_nobody_asks(monkeypatch):
    monkeypatch.setattr(tally_module, "_PENDING_ROWS", 3)
    tally = Tally(1)
    for value in range(7):
        ended(tally, float(value))
        assert len(tally._pending) < 3
    assert tally.snapshot().as_json()["returns"] == {"mean": 3.0, "std": 2.0, "min": 0.0, "max": 6.0}


def part(process):
    tally = Tally(2)
    tally.steps = 10
    tally.reconnects = 1
    ended(tally, float(process))
    tally.connection_over(ConnectionRecord(5, 1, 5, "closed"), 1.0)
    return tally.snapshot()


def test_several_processes_together():
    parts = [part(0), part(1)]
    whole = together(parts)
    assert (whole.steps, whole.episodes, whole.mean_return, whole.groups) == (20, 2, 0.5, 2)
    assert (whole.feedback_rows, whole.unconfirmed_rows) == (10, 2)
    assert whole.reconnects == 2
    assert together([whole, parts[0]]).groups == 3, "parts may be several groups themselves"
    assert whole.seconds == pytest.approx(max(part.seconds for part in parts))
    assert [env["episodes"] for env in together([nothing_yet(1), *parts]).envs_as_json(0)] == [0, 1, 0, 1, 0]


def test_two_lives_of_one_process():
    both = part(0).followed_by(part(4))
    assert (both.steps, both.episodes, both.mean_return, both.groups) == (20, 2, 2.0, 1)
    assert (both.feedback_rows, both.reconnects, both.waited) == (10, 2, 2.0)
    assert both.env_steps.tolist() == [10, 10]
    assert both.recent == (0.0, 4.0)
    assert nothing_yet(2).followed_by(both).as_json() == both.as_json()


def test_nothing_together():
    assert (together([]).steps, together([]).wait_share) == (0, 0.0)


def test_the_connection_of_a_process_that_died_has_ended_with_it():
    tally = Tally(1)
    tally.connection_over(ConnectionRecord(1, 0, 1, "closed"), 0.0)
    tally.connection_open(types.SimpleNamespace(feedback_rows=9, unconfirmed_rows=1, exchanges=9, waited=0.25))
    ended = [record.ended for record in tally.snapshot().cut_off("the process was ended by SIGKILL").connections]
    assert ended == ["closed", "the process was ended by SIGKILL"]


def test_how_well_time_was_kept_is_counted_together():
    tallies = [Tally(1), Tally(1), Tally(1)]
    for tally in tallies[:2]:
        tally.pacing = PacingCounts(steps=3)
    first, second, third = (tally.snapshot() for tally in tallies)
    tallies[0].pacing.steps = 100
    assert together([first, second, third]).as_json()["pacing"]["steps"] == 6
    assert first.followed_by(second).pacing.steps == 6
    assert "pacing" not in third.as_json()
