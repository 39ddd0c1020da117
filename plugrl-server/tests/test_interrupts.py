"""The first signal stops cleanly, any other at once; a program that does not end then is ended."""

import asyncio
import os
import signal

import pytest
from plugrl_server import interrupts
from plugrl_server.interrupts import Interrupts, stop_signals


@pytest.fixture
def told():
    return []


async def after_signals(watched, told, *numbers):
    with watched.handled():
        for n, number in enumerate(numbers, start=1):
            os.kill(os.getpid(), number)
            while len(told) < n:  # noqa: ASYNC110
                await asyncio.sleep(0)


def watch(told, *, in_time=True):
    return Interrupts(lambda name: told.append(("cleanly", name)) or in_time, lambda name: told.append(("now", name)))


def test_the_first_signal_stops_cleanly_the_second_at_once(told):
    watched, before = watch(told), signal.getsignal(signal.SIGTERM)
    asyncio.run(after_signals(watched, told, signal.SIGTERM, signal.SIGINT))
    assert told == [("cleanly", "SIGTERM"), ("now", "SIGINT")]
    assert watched.count == 2
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_that_is_too_late_for_a_clean_stop_stops_at_once(told):
    asyncio.run(after_signals(watch(told, in_time=False), told, signal.SIGTERM))
    assert told[-1] == ("now", "SIGTERM")


def test_what_does_not_end_is_ended(told, monkeypatch):
    ended = []
    monkeypatch.setattr(interrupts, "LAST_RESORT", 0.0)
    monkeypatch.setattr(interrupts.os, "_exit", ended.append)

    async def stuck():
        watched = watch(told, in_time=False)
        with watched.handled():
            os.kill(os.getpid(), signal.SIGINT)
            while not ended:  # noqa: ASYNC110
                await asyncio.sleep(0)

    asyncio.run(stuck())
    assert ended == [130]


def test_an_ignored_hangup_is_left_ignored(monkeypatch):
    monkeypatch.setattr(interrupts.signal, "getsignal", lambda number: signal.SIG_IGN)
    assert stop_signals() == [signal.SIGINT, signal.SIGTERM]
