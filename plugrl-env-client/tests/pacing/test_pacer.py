"""Deadlines, warm-up and ages of one env, on a simulated clock."""

import pytest
from plugrl_env_client.pacing.pacer import CaptureError, Pacer


class Bench:
    """A pacer at 10 steps a second, and the time that only this test moves."""

    def __init__(self, deadline=None, delay=None):
        self.time = 0.0
        self.delay = delay  # of the camera, which says so
        self.pacer = Pacer(10.0, deadline, now=lambda: self.time, sleep=self.pass_time, captured_at=self.captured_at)
        self.pacer.rested()
        self.pacer.connected()
        self.exchange(0.0)

    def captured_at(self):
        return None if self.delay is None else self.time - self.delay

    def pass_time(self, seconds):
        self.time += seconds

    def exchange(self, seconds):
        """Ask, be answered after so long, and run the chunk's only step."""
        self.pacer.asked()
        self.pass_time(seconds)
        late = self.pacer.answered()
        self.step()
        return late

    def step(self):
        self.pacer.wait()
        self.pacer.stepped()


def test_the_deadline_is_three_periods_unless_set():
    assert Bench().pacer.deadline == pytest.approx(0.3)
    assert Bench(deadline=0.5).pacer.deadline == 0.5


@pytest.mark.parametrize(
    ("seconds", "late"), [(0.0, 0), (0.29, 0), (0.3, 0), (0.301, 1), (0.4, 1), (0.401, 2), (60.0, 597)]
)
def test_how_late_an_answer_is(seconds, late):
    bench = Bench()
    assert bench.exchange(seconds) == late
    assert bench.pacer.counts.late_answers == (late > 0)
    assert bench.pacer.counts.answers == 2


def test_the_first_answer_of_each_connection_has_no_deadline():
    bench = Bench()
    bench.pacer.connected()
    bench.pacer.asked()
    assert bench.pacer.patience() is None
    bench.pass_time(40.0)
    assert bench.pacer.answered() == 397  # what it shows is old all the same: run little of the chunk
    bench.step()
    counts = bench.pacer.counts
    assert (counts.late_answers, counts.warm_up, counts.ages.longest) == (0, 40.0, 0.0)
    bench.pacer.asked()
    assert bench.pacer.patience() == pytest.approx(0.3)


def test_fill_ins_take_every_slot_from_the_deadline_on():
    bench = Bench()
    pacer = bench.pacer
    pacer.asked()
    filled = []
    while (patience := pacer.patience()) + bench.time < 0.65:
        bench.pass_time(patience)
        pacer.wait_for_fill_in()
        pacer.stepped()
        filled.append(round(bench.time, 6))
    assert filled == [0.3, 0.4, 0.5, 0.6]
    bench.time = 0.65
    assert pacer.answered() == 4
    bench.step()
    assert bench.time == pytest.approx(0.7)
    counts = pacer.counts
    assert (counts.fill_ins, counts.late_answers, counts.stops) == (4, 1, 0)
    assert (counts.late_steps, counts.missed_slots) == (1, 2)  # the two slots before the deadline
    assert counts.ages.longest == pytest.approx(0.7)


def test_a_stop_ends_the_grid_until_the_answer_is_there():
    bench = Bench()
    pacer = bench.pacer
    pacer.asked()
    bench.pass_time(pacer.patience())
    pacer.stopped()
    assert pacer.patience() is None
    bench.pass_time(1.234)
    assert pacer.answered() == 13
    bench.step()
    assert bench.time == pytest.approx(1.534)
    assert (pacer.counts.stops, pacer.counts.late_steps) == (1, 0)
    pacer.asked()
    assert pacer.patience() == pytest.approx(0.3)


def test_an_answer_right_after_a_fill_in_is_late_by_it():
    bench = Bench(deadline=0.32)  # the slot at 0.3 is within the slack
    bench.pacer.asked()
    bench.pass_time(bench.pacer.patience())
    assert bench.time == pytest.approx(0.3)
    bench.pacer.wait_for_fill_in()
    assert bench.pacer.answered() == 1


def test_the_age_of_an_observation_grows_along_its_chunk():
    bench = Bench()
    bench.pacer.asked()
    bench.pass_time(0.05)
    bench.pacer.answered()
    for _ in range(4):
        bench.step()
    assert bench.pacer.counts.ages.longest == pytest.approx(0.4)
    assert bench.pacer.counts.ages.quantile(0.5) == pytest.approx(0.2, rel=0.011)


def test_an_episode_begins_without_anything_due():
    bench = Bench()
    bench.pass_time(30.0)  # a reset takes its time
    bench.pacer.rested()
    bench.exchange(0.2)
    assert bench.pacer.counts.late_steps == 0
    assert bench.pacer.counts.ages.longest == pytest.approx(0.2)
    assert bench.time == pytest.approx(30.2)


def test_age_and_deadline_count_from_the_time_that_the_env_states():
    bench = Bench(delay=0.08)
    bench.pacer.asked()
    assert bench.pacer.patience() == pytest.approx(0.2), "the slot at 0.2 comes within the slack of 0.22"
    bench.pass_time(0.05)
    assert bench.pacer.answered() == 0
    bench.step()
    assert bench.pacer.counts.ages.longest == pytest.approx(0.1 + 0.08)
    bench.delay = None
    bench.exchange(0.05)
    assert bench.pacer.counts.ages.longest == pytest.approx(0.1 + 0.08), "the one before; this is 0.1 old"
    bench.exchange(0.05)
    assert bench.pacer.counts.ages.quantile(0.0) == pytest.approx(0.1, rel=0.011)


def test_a_reset_states_its_time_too():
    bench = Bench(delay=4.0)
    bench.pass_time(10.0)
    bench.pacer.rested()
    bench.exchange(0.0)
    assert bench.pacer.counts.ages.longest == pytest.approx(4.0)


def test_a_camera_whose_clock_is_a_little_ahead_has_captured_it_now():
    bench = Bench()
    bench.delay = -0.05
    bench.step()
    bench.exchange(0.0)
    assert bench.pacer.counts.ages.quantile(0.0) == pytest.approx(0.1, rel=0.011)


@pytest.mark.parametrize("delay", [-0.11, -1.8e9, float("nan"), float("inf"), -float("inf")])
def test_another_clock_is_refused(delay):
    bench = Bench()
    bench.delay = delay
    with pytest.raises(CaptureError, match=r"captured_at .*: expected seconds of time\.monotonic"):
        bench.step()
