"""The grid of steps, on a clock that only `sleep` and the test move."""

import itertools

import pytest
from plugrl_env_client.pacing.grid import SLACK, Grid


class Clock:
    def __init__(self, start=1000.0):
        self.time = start
        self.slept = []

    def now(self):
        return self.time

    def sleep(self, seconds):
        assert seconds > 0
        self.slept.append(seconds)
        self.time += seconds


def steps(clock, grid, work):
    """When each of the steps began (from the first one on) that take `work` seconds each, and the slots missed."""
    begun = []
    for seconds in work:
        missed = grid.wait()
        begun.append((pytest.approx(clock.time - 1000.0), missed))
        clock.time += seconds
    return begun


def grid_of(period):
    clock = Clock()
    return clock, Grid(period, clock.now, clock.sleep)


def test_the_first_step_is_at_once_and_the_others_a_period_apart():
    clock, grid = grid_of(0.1)
    assert steps(clock, grid, [0.03, 0.0, 0.09, 0.02]) == [(0.0, 0), (0.1, 0), (0.2, 0), (0.3, 0)]


def test_delays_do_not_add_up():
    clock, grid = grid_of(1 / 30)
    sleep = clock.sleep
    grid._sleep = lambda seconds: sleep(seconds + 0.002)  # a sleep is never exact
    for _ in range(3001):
        grid.wait()
        clock.time += 0.01
    assert clock.time - 1000.0 == pytest.approx(100.0 + 0.002 + 0.01)


def test_a_step_that_is_a_little_late_takes_its_own_slot():
    clock, grid = grid_of(0.1)
    assert steps(clock, grid, [0.12, 0.0, 0.0]) == [(0.0, 0), (0.12, 0), (0.2, 0)]


def test_a_step_that_is_late_waits_for_the_next_slot():
    clock, grid = grid_of(0.1)
    assert steps(clock, grid, [0.13, 0.0]) == [(0.0, 0), (0.2, 1)]


def test_after_a_stall_there_is_no_burst():
    clock, grid = grid_of(0.1)
    begun = steps(clock, grid, [0.0, 1.234, 0.0, 0.0])
    assert begun == [(0.0, 0), (0.1, 0), (1.4, 12), (1.5, 0)]


def test_steps_are_never_much_less_than_a_period_apart():
    clock, grid = grid_of(0.1)
    begun = []
    for seconds in [0.0, 0.124, 0.1, 0.224, 0.05, 0.32, 0.1, 0.1, 0.1]:
        grid.wait()
        begun.append(clock.time)
        clock.time += seconds
    gaps = [after - before for before, after in itertools.pairwise(begun)]
    assert min(gaps) >= (1 - SLACK) * 0.1 - 1e-9


def test_a_restart_forgets_what_was_due():
    clock, grid = grid_of(0.1)
    steps(clock, grid, [0.0, 7.77])
    grid.restart()
    assert steps(clock, grid, [0.0, 0.0]) == [(7.87, 0), (7.97, 0)]


def test_time_until_a_slot():
    clock, grid = grid_of(0.1)
    assert grid.until_slot(1000.25) == pytest.approx(0.25)  # no grid yet
    grid.wait()
    assert grid.until_slot(999.0) == pytest.approx(0.1)  # the slot of the last step is taken
    assert grid.until_slot(1000.24) == pytest.approx(0.3)
    assert grid.until_slot(1000.22) == pytest.approx(0.2)  # within the slack
    clock.time += 0.35
    assert grid.until_slot(1000.2) == 0.0
