"""The bounded queue: what waits, what is refused, and who is let go."""

import threading
import tracemalloc

import numpy as np
import pytest
from plugrl_env_client.recording.episode import Rows
from plugrl_env_client.recording.intake import Abandoned, Begun, Intake, Stepped


def begun(env, size=10):
    rows = Rows({}, {"state": np.zeros((1, size), np.uint8)}, np.array([""], "U1"))
    return Begun(np.array([env]), np.array([0]), rows)


SIZE = begun(0).nbytes


def in_a_thread(call):
    """Start a call; returns a function that waits for its result."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()

    def result():
        thread.join(10)
        return results[0]

    return result


def test_items_come_out_in_order():
    intake = Intake(3 * SIZE)
    for env in range(3):
        assert intake.put(begun(env), wait=False)
    assert [intake.take(wait=True).envs.item() for _ in range(3)] == [0, 1, 2]
    assert intake.take(wait=False) is None
    intake.close()
    assert intake.take(wait=True) is None


def test_no_more_than_the_limit_waits():
    intake = Intake(2 * SIZE)
    assert [intake.put(begun(env), wait=False) for env in range(3)] == [True, True, False]
    intake.take(wait=False)
    assert intake.put(begun(3), wait=False)


def test_an_item_over_the_limit_passes_alone_and_one_without_size_always():
    intake = Intake(SIZE)
    assert intake.put(begun(0, 1000), wait=False)
    assert not intake.put(begun(1), wait=False)
    assert intake.put(Abandoned(np.array([0])), wait=False)


def test_what_holds_little_counts_for_the_memory_it_takes():
    """An env of four numbers: nearly all of it is what Python and NumPy add."""
    state, one, text = np.zeros((8, 4), np.float32), np.array([3]), np.full(8, "")

    def stepped():
        rows = Rows({}, {"state": state[one]}, text[one])
        return Stepped(one + 1, one * 2, one * 1.0, one < 0, one > 9, None, rows)

    stepped()
    tracemalloc.start()
    try:
        items = [stepped() for _ in range(1000)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(item.nbytes for item in items) == pytest.approx(taken, rel=0.4)


def test_waiting_for_room():
    intake = Intake(SIZE)
    intake.put(begun(0), wait=True)
    put = in_a_thread(lambda: intake.put(begun(1), wait=True))
    assert intake.take(wait=True).envs == [0]
    assert put()
    assert intake.take(wait=True).envs == [1]


def test_an_env_waits_for_its_own_episode():
    intake = Intake(SIZE)
    intake.ended([1, 2])
    intake.wait_until_safe([3])
    waiting = in_a_thread(lambda: intake.wait_until_safe([1]) or "safe")
    intake.safe([2])
    intake.safe([1])
    assert waiting() == "safe"


@pytest.mark.parametrize("what", ["room", "safety"])
def test_nobody_waits_for_a_broken_writer(what):
    intake = Intake(SIZE)
    intake.put(begun(0), wait=True)
    intake.ended([0])
    calls = {"room": lambda: intake.put(begun(1), wait=True), "safety": lambda: intake.wait_until_safe([0]) is None}
    waiting = in_a_thread(calls[what])
    intake.breaks()
    assert waiting()
    assert intake.take(wait=False) is None
    intake.ended([0])
    intake.wait_until_safe([0])


@pytest.mark.parametrize("what", ["room", "safety"])
def test_a_writer_that_does_nothing_is_given_up(what):
    told = []
    intake = Intake(SIZE, patience=0.01, stuck=lambda: told.append("stuck"))
    intake.put(begun(0), wait=True)
    intake.ended([0])
    if what == "room":
        assert intake.put(begun(1), wait=True)
    else:
        intake.wait_until_safe([0])
    intake.wait_until_safe([0])
    assert told == ["stuck"]
    assert intake.take(wait=False) is None


def test_a_writer_that_is_slow_is_not_given_up():
    """It gets on twenty times, each time just before it would be given up, and then is done."""
    told = []

    def work():
        told.append("on")
        if len(told) == 20:
            intake.take(wait=False)
        return len(told)

    intake = Intake(SIZE, patience=0.001, work=work, stuck=lambda: told.append("stuck"))
    intake.put(begun(0), wait=True)
    assert intake.put(begun(1), wait=True)
    assert "stuck" not in told
    assert len(told) >= 20
    assert intake.take(wait=False).envs == [1]
