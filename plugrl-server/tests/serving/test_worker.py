"""Threads for slow calls, and when a call is quick enough to go without."""

import asyncio
import sys
import threading

import pytest
from plugrl_server.serving import worker
from plugrl_server.serving.worker import LoopRuntime, Pace, Spinner, Worker, attempt


def test_an_outcome_tells_value_error_and_time():
    assert attempt(lambda: 3).value == 3
    failed = attempt(lambda: 1 // 0)
    assert isinstance(failed.error, ZeroDivisionError)
    assert failed.seconds >= 0


def test_a_call_that_asks_python_to_exit_has_failed():
    """In a worker's thread it would end that thread alone, and the run would wait for the call for ever."""
    left = attempt(lambda: sys.exit(3))
    assert str(left.error) == "sys.exit(3) was called in the policy or the algorithm"


def test_a_kind_of_call_earns_its_place_on_the_loop():
    """Inline only after 20 calls of a batch shape that all took under 1 ms."""
    pace = Pace()
    for _ in range(19):
        pace.note("small", 0.0001)
    assert not pace.is_quick("small")
    pace.note("small", 0.002)
    for _ in range(19):
        pace.note("small", 0.0001)
    assert not pace.is_quick("small")
    pace.note("small", 0.0001)
    assert pace.is_quick("small")
    assert not pace.is_quick("large")


@pytest.mark.parametrize(("every", "lasts"), [(20, True), (5, False), (1, False)])
def test_late_calls_now_and_then_are_forgiven(every, lasts):
    """A busy machine makes single calls late; a slow policy makes many of them slow."""
    pace = Pace()
    for _ in range(100):
        pace.note("small", 0.0001)
    for number in range(1, 400):
        pace.note("small", 0.003 if number % every == 0 else 0.0001)
        if not pace.is_quick("small"):
            break
    assert pace.is_quick("small") is lasts


def test_one_very_slow_call_is_enough():
    pace = Pace()
    for _ in range(100):
        pace.note("small", 0.0001)
    pace.note("small", 0.5)
    assert not pace.is_quick("small")


def test_jobs_of_a_lane_are_done_in_order_off_the_loop_and_told_on_it():
    async def run():
        runtime, done, threads = LoopRuntime(asyncio.get_running_loop()), [], set()
        finished = asyncio.Event()

        def job(number):
            threads.add(threading.current_thread().name)
            return number

        def take(outcome):
            done.append((outcome.value, threading.current_thread() is threading.main_thread()))
            if len(done) == 3:
                finished.set()

        for number in range(3):
            runtime.work("learn", lambda number=number: job(number), take)
        await finished.wait()
        runtime.close()
        return done, threads

    done, threads = asyncio.run(run())
    assert done == [(0, True), (1, True), (2, True)]
    assert threads == {"plugrl-learn"}


def test_a_job_that_outlives_the_loop_is_ignored():
    release, over = threading.Event(), threading.Event()

    def slow():
        release.wait(5)
        over.set()

    async def run():
        runtime = LoopRuntime(asyncio.get_running_loop())
        runtime.work("learn", slow, lambda outcome: None)
        runtime.close()

    asyncio.run(run())
    release.set()
    assert over.wait(5)


def test_a_worker_is_a_daemon_and_ends_when_told():
    worker = Worker("test")
    assert worker._thread.daemon
    worker.stop()
    worker._thread.join(5)
    assert not worker._thread.is_alive()


class FakeLoop:
    """A loop whose every turn takes a millisecond, `running` of which this thread ran."""

    def __init__(self, monkeypatch):
        self.now, self.cpu, self.running, self.calls = 0.0, 0.0, 1.0, []
        monkeypatch.setattr(worker, "yield_core", lambda: None)
        monkeypatch.setattr(worker, "spare_cores", lambda: True)
        monkeypatch.setattr(worker.time, "thread_time", lambda: self.cpu)
        monkeypatch.setattr(Spinner, "AUTO", 0.016)
        monkeypatch.setattr(Spinner, "LOST", 0.004)

    def time(self):
        return self.now

    def call_soon(self, callback):
        self.calls.append(callback)

    def pass_time(self, seconds):
        self.now += seconds
        self.cpu += seconds * self.running

    def spin_until_asleep(self):
        turns = 0
        while self.calls:
            self.pass_time(0.001)
            self.calls.pop()()
            turns += 1
        return turns


@pytest.fixture
def loop(monkeypatch):
    return FakeLoop(monkeypatch)


def test_a_fixed_time_is_polled_after_every_activity(loop):
    spinner = Spinner(loop, 0.016)
    for _ in range(3):
        spinner.active()
        assert loop.spin_until_asleep() in (16, 17)
        loop.pass_time(1.0)


def test_activity_while_polling_prolongs_it_and_starts_no_second_one(loop):
    spinner = Spinner(loop, 0.016)
    spinner.active()
    loop.pass_time(0.010)
    spinner.active()
    assert len(loop.calls) == 1
    assert loop.spin_until_asleep() in (16, 17)


def test_left_to_itself_it_polls_while_messages_come_soon(loop):
    spinner = Spinner(loop, None)
    for _ in range(20):
        spinner.active()
        loop.pass_time(0.005)
    assert loop.spin_until_asleep() > 0


def test_left_to_itself_it_sleeps_while_messages_take_long(loop):
    spinner = Spinner(loop, None)
    for _ in range(20):
        spinner.active()
        loop.spin_until_asleep()
        loop.pass_time(0.1)
    spinner.active()
    assert loop.calls == []
    for _ in range(40):  # and polls again once they come soon
        loop.pass_time(0.005)
        spinner.active()
    assert loop.spin_until_asleep() > 0


def test_it_sleeps_for_a_while_when_others_want_its_core(loop):
    spinner = Spinner(loop, None)
    spinner.active()
    loop.running = 0.1
    loop.pass_time(0.005)
    spinner.active()
    loop.running = 1.0
    loop.spin_until_asleep()
    loop.pass_time(0.001)
    spinner.active()
    assert loop.calls == []
    for _ in range(300):
        loop.pass_time(0.005)
        spinner.active()
    assert loop.calls != []


@pytest.mark.parametrize("longest", [0.0, None])
def test_without_a_budget_or_a_second_core_nothing_spins(loop, longest, monkeypatch):
    monkeypatch.setattr(worker, "spare_cores", lambda: False)
    Spinner(loop, longest).active()
    assert loop.calls == []
