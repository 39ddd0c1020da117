"""Signals end a wait at once, and work at the next step."""

import os
import signal

import pytest
from plugrl_env_client.link.interrupts import Interrupted, Interrupts


def interrupt(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_work_is_remembered_and_ends_the_next_wait(number):
    with Interrupts().handling() as interrupts:
        interrupt(number)
        assert interrupts.requested
        with pytest.raises(Interrupted), interrupts.waiting():
            pytest.fail("the wait must not begin")


def test_a_signal_during_a_wait_ends_it():
    with Interrupts().handling() as interrupts:
        with pytest.raises(Interrupted), interrupts.waiting():
            interrupt()
        assert interrupts.requested


def test_a_second_signal_ends_the_process():
    with Interrupts().handling() as interrupts:
        interrupt(signal.SIGINT)
        with pytest.raises(SystemExit) as ended:
            interrupt(signal.SIGINT)
    assert ended.value.code == 130
    assert interrupts.requested


def test_a_second_signal_does_nothing_to_a_process_that_is_looked_after():
    with Interrupts(patient=True).handling() as interrupts:
        interrupt()
        interrupt()
        assert interrupts.requested


def test_a_wait_can_be_seen_from_outside():
    interrupts = Interrupts()
    assert not interrupts.is_waiting
    with interrupts.waiting():
        assert interrupts.is_waiting
    assert not interrupts.is_waiting


def test_half_a_frame_waits_too_but_no_signal_interrupts_it():
    with Interrupts().handling() as interrupts:
        interrupts.stalled = True
        interrupt()
        assert (interrupts.is_waiting, interrupts.requested) == (True, True)


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts().handling(signal.SIGTERM):
        assert signal.getsignal(signal.SIGTERM) is not before
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_threads_wait_is_not_raised_in_but_does_not_begin_again():
    with Interrupts().handling() as main:
        group, other = Interrupts(main), Interrupts(main)
        with group.waiting():
            interrupt()  # raises nothing: this wait is not the main thread's
        for interrupts in (group, other):
            assert interrupts.requested
            with pytest.raises(Interrupted), interrupts.waiting():
                pytest.fail("the wait must not begin")


def test_one_thread_can_be_ended_by_itself():
    main = Interrupts()
    group, other = Interrupts(main), Interrupts(main)
    group.request()
    assert (group.requested, other.requested, main.requested) == (True, False, False)


def test_what_is_made_below_a_client_that_should_end_should_end_too():
    main = Interrupts()
    main.request()
    assert Interrupts(Interrupts(main)).requested


def test_nothing_is_lost_of_a_signal_that_comes_while_another_is_put_below():
    class Signalled(list):
        def append(self, interrupts):
            main.request()
            super().append(interrupts)

    main = Interrupts()
    main._below = Signalled()
    assert Interrupts(main).requested


def test_a_request_reaches_everything_below():
    main = Interrupts()
    process = Interrupts(main)
    group = Interrupts(process)
    main.request()
    assert (process.requested, group.requested) == (True, True)
