"""The event loop as the scheduler sees it: time, timers, threads for slow calls, and spinning."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import queue
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from plugrl_server.serving.connection.session import Clock

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a call came to.

    Attributes:
        value: What it returned; None where it raised.
        error: What it raised, or None.
        seconds: How long it took.
    """

    value: T | None
    error: Exception | None
    seconds: float


def attempt(job: Callable[[], T]) -> Outcome[T]:
    """Call something and return its outcome."""
    started = time.perf_counter()
    try:
        value = job()
    except SystemExit as error:  # it would end a worker's thread, and then nobody would hear of the call again
        problem = RuntimeError(f"sys.exit({error.code!r}) was called in the policy or the algorithm")
        return Outcome(None, problem, time.perf_counter() - started)
    except Exception as error:
        return Outcome(None, error, time.perf_counter() - started)
    return Outcome(value, None, time.perf_counter() - started)


class Pace:
    """Which kinds of calls are quick enough for the event loop's own thread.

    A tiny policy must not pay 100 us of thread hops for each inference, and a slow one must never block the loop: a
    kind runs inline only after `CALLS` calls in a row that all took less than `LIMIT`. From then on slow calls now and
    then (the process was not scheduled) are forgiven; one in ten of them, or a very slow one, are not.
    """

    CALLS = 20
    LIMIT = 1e-3
    VERY_SLOW = 50e-3
    MOST_TRUST = 100

    def __init__(self) -> None:
        self._trust: dict[Hashable, int] = {}

    def is_quick(self, kind: Hashable) -> bool:
        """Return whether calls of this kind may run inline."""
        return self._trust.get(kind, 0) >= self.CALLS

    def note(self, kind: Hashable, seconds: float) -> None:
        """Take the duration of a call, s."""
        trust = self._trust.get(kind, 0)
        if seconds < self.LIMIT:
            self._trust[kind] = min(trust + 1, self.MOST_TRUST)
        elif seconds < self.VERY_SLOW and trust >= self.CALLS:
            self._trust[kind] = trust - 10
        else:
            self._trust[kind] = 0


class Runtime(Clock, Protocol):
    """What the scheduler runs on."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back once what has arrived already is handled."""
        ...

    def work(self, lane: str, job: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None:
        """Do a job in the worker thread of a lane, then call `done` on the event loop's thread."""
        ...


class Worker:
    """A thread that does jobs in order. It is a daemon: a job that never ends does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job, which must not raise."""
        self._jobs.put(job)

    def stop(self) -> None:
        """End the thread after the jobs in its queue; does not wait."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class LoopRuntime:
    """The runtime of a real server."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._workers: dict[str, Worker] = {}
        self.time = loop.time
        self.call_at = loop.call_at

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the loop's next iteration."""
        self._loop.call_soon(callback)

    def work(self, lane: str, job: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None:
        """Do a job in the thread of a lane."""
        if lane not in self._workers:
            self._workers[lane] = Worker(f"plugrl-{lane}")
        self._workers[lane].submit(lambda: self._hand_back(attempt(job), done))

    def close(self) -> None:
        """Let the threads end."""
        for worker in self._workers.values():
            worker.stop()

    def _hand_back(self, outcome: Outcome[Any], done: Callable[[Outcome[Any]], None]) -> None:
        with suppress(RuntimeError):  # the run was stopped without waiting for this job, and the loop is closed
            self._loop.call_soon_threadsafe(done, outcome)


class Spinner:
    """Polls the sockets for a while after each activity instead of sleeping at once (`--spin-us`).

    Waking a sleeping process costs about 100 us on a virtual machine, as much as everything else in a small exchange.

    Args:
        loop: The event loop.
        longest: How long to poll after each activity, s; 0 never polls. None leaves it to the spinner: `AUTO`, while
            messages usually come that soon after each other and nobody else wants this core.
    """

    AUTO = 500e-6
    LOST = 300e-6
    """Time in which a polling thread did not run, s, that tells of others who want its core (or its interpreter)."""
    REST = 1.0
    """How long it then sleeps as everybody does, s."""

    def __init__(self, loop: asyncio.AbstractEventLoop, longest: float | None) -> None:
        self._loop = loop
        self._adaptive = longest is None
        self._longest = longest if longest is not None else self.AUTO if spare_cores() else 0.0
        self._until = 0.0
        self._spinning = False
        self._last = self._last_cpu = -1.0
        self._usual = self._longest
        self._resting_until = 0.0

    def active(self) -> None:
        """Note that something arrived."""
        if not self._longest:
            return
        now = self._loop.time()
        if self._adaptive and not self._pays(now):
            return
        self._until = now + self._longest
        if not self._spinning:
            self._spinning = True
            self._loop.call_soon(self._spin)

    def _pays(self, now: float) -> bool:
        """Return whether the next message is likely to come soon, and this core is likely to be free until then."""
        cpu = time.thread_time()
        if self._spinning and (now - self._last) - (cpu - self._last_cpu) > self.LOST:
            self._resting_until = now + self.REST
        self._usual += (min(now - self._last, 8 * self._longest) - self._usual) / 8
        self._last, self._last_cpu = now, cpu
        return self._usual <= self._longest and now >= self._resting_until

    def _spin(self) -> None:
        if self._loop.time() < self._until:
            yield_core()
            self._loop.call_soon(self._spin)
        else:
            self._spinning = False


def spare_cores() -> bool:
    """Return whether this process may use more than one core."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return usable > 1


yield_core: Callable[[], None] = getattr(os, "sched_yield", lambda: None)
"""Let whoever waits for this core run first; does nothing where the system has no such call."""
