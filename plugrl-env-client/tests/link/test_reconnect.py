"""When to try again, how long to wait, and when to stop: SPEC 7.7, field lesson 11."""

import logging
import random
import threading

import pytest
from plugrl_env_client.link.address import Address
from plugrl_env_client.link.interrupts import Interrupted, Interrupts
from plugrl_env_client.link.opening import ConnectError
from plugrl_env_client.link.reconnect import (
    FIRST_DELAY,
    LONGEST_DELAY,
    GaveUp,
    Reconnector,
    ServerStopped,
    interruptible_sleep,
)
from plugrl_env_client.link.transport import BROKEN, Closed
from plugrl_protocol.closing import DONE, FEEDBACK_TIMEOUT, INTERNAL_ERROR, RESYNC, STOP, TOO_BIG, Close, reject

ADDRESS = Address("box", 8000)
LINK = object()


def reconnector(outcomes, slept, **options):
    """One whose attempts end as listed: an exception, or a link."""
    remaining = iter(outcomes)

    def open_link():
        outcome = next(remaining)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    settings = {"max_reconnects": 20, "sleep": slept.append, "rng": random.Random(0)}
    return Reconnector(ADDRESS, open_link, **{**settings, **options})


def test_the_first_success_is_taken():
    slept = []
    assert reconnector([ConnectError("refused"), ConnectError("refused"), LINK], slept).connect() is LINK
    assert len(slept) == 2


def test_the_wait_grows_with_jitter_up_to_a_cap():
    slept = []
    with pytest.raises(GaveUp, match=r"ws://box:8000: refused; gave up after --max-reconnects 20"):
        reconnector([ConnectError("refused")] * 30, slept).connect()
    assert len(slept) == 20
    for attempt, delay in enumerate(slept):
        longest = min(FIRST_DELAY * 2**attempt, LONGEST_DELAY)
        assert longest / 2 <= delay <= longest
    assert len(set(slept)) == 20


@pytest.mark.parametrize("close", [DONE, BROKEN, INTERNAL_ERROR, FEEDBACK_TIMEOUT, RESYNC, Close(1012), Close(1005)])
def test_every_other_close_waits_too(close):
    slept = []
    reconnector([], slept).lost(Closed(close))
    assert len(slept) == 1
    assert slept[0] >= FIRST_DELAY / 2


@pytest.mark.parametrize("close", [reject("action_dim 3, this run has 6"), TOO_BIG, Close(1003, "text")])
def test_a_final_close_prints_its_reason(close):
    slept = []
    with pytest.raises(GaveUp, match=close.reason):
        reconnector([], slept).lost(Closed(close))
    assert slept == []


def test_a_refused_key_is_final():
    with pytest.raises(GaveUp, match="HTTP 401"):
        reconnector([ConnectError("HTTP 401: no", final=True)], []).connect()


def test_a_stop_ends_the_run_also_before_the_metadata():
    with pytest.raises(ServerStopped):
        reconnector([], []).lost(Closed(STOP))
    with pytest.raises(ServerStopped):
        reconnector([Closed(STOP)], []).connect()


def test_a_client_told_to_wait_for_the_next_run_does():
    slept = []
    assert reconnector([Closed(STOP), LINK], slept, after_stop=True).connect() is LINK
    assert len(slept) == 1


def test_a_completed_exchange_renews_the_attempts():
    slept = []
    patient = reconnector([LINK] * 9, slept, max_reconnects=2)
    for _ in range(3):
        patient.connect()
        patient.lost(Closed(BROKEN))
        patient.completed()
    patient.lost(Closed(BROKEN))
    patient.lost(Closed(BROKEN))
    with pytest.raises(GaveUp):
        patient.lost(Closed(BROKEN))


def test_no_attempts_at_all():
    with pytest.raises(GaveUp, match="gave up after --max-reconnects 0"):
        reconnector([ConnectError("refused")], [], max_reconnects=0).connect()


def test_lesson_11_and_27_one_line_an_attempt_and_the_first_says_how_to_start(caplog):
    with caplog.at_level(logging.WARNING):
        reconnector([ConnectError("connecting: connection refused")] * 2 + [LINK], []).connect()
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("ws://box:8000: connecting: connection refused (is a server running? Start one with: ")
    assert "; attempt 1 of 20 in 0.2 s" in first or "; attempt 1 of 20 in 0.1 s" in first
    assert second.startswith("ws://box:8000: connecting: connection refused; attempt 2 of 20 in ")


def test_a_sleep_ends_with_a_signal():
    interrupts = Interrupts()
    interruptible_sleep(interrupts)(0.001)
    interrupts.request()
    with pytest.raises(Interrupted):
        interruptible_sleep(interrupts)(60)


def test_a_sleep_in_another_thread_looks_for_the_signal(monkeypatch):
    monkeypatch.setattr("plugrl_env_client.link.reconnect._NAP", 0.001)
    main = Interrupts()
    ended = []

    def nap():
        with pytest.raises(Interrupted):
            interruptible_sleep(Interrupts(main))(60)
        ended.append(True)

    thread = threading.Thread(target=nap)
    thread.start()
    main.request()
    thread.join(10)
    assert ended == [True]
