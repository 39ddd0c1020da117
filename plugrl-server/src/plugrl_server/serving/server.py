"""The training server: it listens, and sees to it that a run ends well."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from plugrl_protocol.connection import Connection, Role, Timeouts
from plugrl_protocol.errors import LocalProtocolError
from plugrl_protocol.messages import Metadata

from plugrl_server.serving.connection.metadata import server_metadata
from plugrl_server.serving.connection.session import Session
from plugrl_server.serving.connection.websocket.endpoint import WebSocketEndpoint
from plugrl_server.serving.connection.websocket.http import Front
from plugrl_server.serving.interface import Ending, RunEvents, RunResult, ServingOptions, TrainerSource
from plugrl_server.serving.metrics import prometheus_text
from plugrl_server.serving.scheduler import Scheduler
from plugrl_server.serving.worker import LoopRuntime, Outcome, Spinner
from plugrl_server.training.accounting import Accounting
from plugrl_server.training.trainer import AlgorithmError

__all__ = ["RunEvents", "RunResult", "ServingOptions", "TrainerSource", "TrainingServer"]

logger = logging.getLogger(__name__)

STOPPED_NOW = "stopped at once, without waiting or saving"

BACKLOG = 1024
"""Connections that may wait to be accepted."""


class TrainingServer:
    """Serves one run.

    Args:
        source: Has or builds the trainer.
        options: How to serve.
        events: Told what happens.

    Attributes:
        accounting: What became of every feedback row so far.
    """

    def __init__(self, source: TrainerSource, options: ServingOptions, events: RunEvents) -> None:
        self.accounting = Accounting()
        self._source = source
        self._options = options
        self._events = events
        self._endpoints: set[WebSocketEndpoint] = set()
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()
        self._stopped_now = False
        self._early: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def connection_count(self) -> int:
        """Clients connected now."""
        return 0 if self._loop is None else len(self._scheduler.sessions)

    def request_stop(self, reason: str, exit_code: int = 0, save: bool = True) -> None:
        """End the run cleanly; only the first call counts. May be called from any thread, also before `run`.

        The clients are told, a learn step in flight has `stop_grace` to end, and the last complete state is saved.
        """
        self._call(lambda: self._scheduler.end(Ending(reason, exit_code, save=save)))

    def stop_now(self) -> None:
        """End the run at once: nothing is waited for, nothing more is saved. May be called from any thread."""
        self._call(self._stop_now)

    async def run(self) -> RunResult:
        """Listen, serve until the run ends, and return how it ended. To be called once."""
        self._start(asyncio.get_running_loop())
        try:
            self._metadata()  # `--metadata` may have spoilt it
            listener = await asyncio.get_running_loop().create_server(
                self._endpoint, self._options.host, self._options.port, backlog=BACKLOG
            )
        except (OSError, LocalProtocolError) as error:
            return self._result(Ending("failed", 1, self._why_not(error)))
        try:
            self._events.listening(*listener.sockets[0].getsockname()[:2])
            await self._until(lambda: self._scheduler.ending is not None)
            listener.close()
            await self._wind_up()
        finally:
            listener.close()
            for endpoint in list(self._endpoints):
                endpoint.abort()
            await asyncio.sleep(0)  # the aborted connections report their end
            self._runtime.close()
            if self._scheduler.trainer is not None:
                try:
                    self._scheduler.trainer.close()
                except Exception as error:  # all is saved: the run has failed, and still says what it came to
                    self._scheduler.fail(AlgorithmError.of("close", error))
        self.accounting.finish()
        return self._result(self._last_ending())

    # Starting ----------------------------------------------------------------------------------------------------

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        options = self._options
        self._loop = loop
        self._runtime = LoopRuntime(loop)
        self._spinner = Spinner(loop, None if options.spin_us is None else options.spin_us / 1e6)
        self._scheduler = Scheduler(
            self._runtime, self._source, options, self._events, self.accounting, self._changed.set
        )
        self._front = Front(
            options.api_key,
            lambda: self._scheduler.readiness,
            lambda: prometheus_text(self._scheduler, self.accounting),
        )
        self._timeouts = Timeouts(
            feedback=options.feedback_wait_timeout,
            ping_interval=options.ping_interval,
            ping_timeout=options.ping_timeout,
            close=options.close_timeout,
        )
        self._scheduler.start()
        for call in self._early:
            call()

    def _endpoint(self) -> WebSocketEndpoint:
        options = self._options
        endpoint = WebSocketEndpoint(
            asyncio.get_running_loop(),
            respond=self._front.respond,
            handle=self._session,
            gone=self._endpoints.discard,
            read=None if options.spin_us == 0 else self._spinner.active,
            max_size=options.max_frame,
            open_timeout=options.open_timeout,
            close_timeout=options.close_timeout,
        )
        self._endpoints.add(endpoint)
        return endpoint

    def _session(self, endpoint: WebSocketEndpoint) -> Session:
        name = f"connection {next(self._numbers)} ({endpoint.peer})"
        logger.info("%s: opened", name)
        now = self._runtime.time()
        connection = Connection(Role.SERVER, now=now, timeouts=self._timeouts, max_frame=self._options.max_frame)
        count = self.accounting.open(name)
        return Session(name, endpoint, self._scheduler, self._runtime, connection, count, self._metadata())

    def _metadata(self) -> Metadata:
        return server_metadata(self._source.describe(), self._options.metadata)

    def _why_not(self, error: OSError | LocalProtocolError) -> str:
        if isinstance(error, LocalProtocolError):
            return f"--metadata: {error}"
        place = f"{self._options.host}:{self._options.port}"
        return f"cannot listen on {place} (--host, --port): {error.strerror or error}"

    # Ending ------------------------------------------------------------------------------------------------------

    def _call(self, call: Callable[[], None]) -> None:
        """Make a call on the event loop's thread; once the loop runs."""
        if self._loop is None:
            self._early.append(call)
            return
        with suppress(RuntimeError):  # the loop is closed: the run has ended
            self._loop.call_soon_threadsafe(call)

    def _stop_now(self) -> None:
        self._stopped_now = True
        self._changed.set()

    async def _until(self, condition: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait for a condition, but no longer than that, and not after `stop_now`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not (condition() or self._stopped_now):
                    self._changed.clear()
                    await self._changed.wait()

    async def _wind_up(self) -> None:
        """Close every connection, let the call in flight end, save, and wait for the clients' close frames."""
        scheduler, ending = self._scheduler, self._last_ending()
        for session in list(scheduler.sessions):
            session.close(ending.close)
        await self._until(lambda: scheduler.is_idle, self._options.stop_grace)
        if self._last_ending().save and not self._stopped_now:
            await self._save()
        await self._until(lambda: not scheduler.sessions, self._options.close_timeout + 1)

    async def _save(self) -> None:
        trainer = self._scheduler.trainer
        if trainer is None:
            return
        outcomes: list[Outcome[Path | None]] = []

        def done(outcome: Outcome[Path | None]) -> None:
            outcomes.append(outcome)
            self._changed.set()

        self._runtime.work("save", trainer.save, done)
        await self._until(lambda: bool(outcomes))
        if outcomes and outcomes[0].error is not None:
            self._scheduler.fail(outcomes[0].error)
        elif outcomes and outcomes[0].value is not None:
            self._events.saved(outcomes[0].value)

    def _last_ending(self) -> Ending:
        ending = self._scheduler.ending or Ending("interrupted")
        if self._stopped_now:
            return dataclasses.replace(ending, exit_code=ending.exit_code or 1, error=ending.error or STOPPED_NOW)
        return ending

    def _result(self, ending: Ending) -> RunResult:
        trainer = self._scheduler.trainer
        saved = None if trainer is None else trainer.saved
        error = ending.error
        if error is not None and trainer is not None:
            error = f"{error}; last checkpoint: {saved or 'none was written'}"
        step = 0 if trainer is None else trainer.global_step
        return RunResult(ending.reason, ending.exit_code, error, self.accounting, step, saved)
