"""The clients that a server starts: begun when it listens, watched while it runs, gone when it is gone."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from plugrl_server.children.child import Child
from plugrl_server.children.command import client_environment, filled, reachable
from plugrl_server.children.guard import Guard
from plugrl_server.children.peers import connections_to

logger = logging.getLogger(__name__)


class Supervisor:
    """Starts the clients and draws the conclusions when they end.

    Args:
        commands: One shell command for each client.
        logs: Folder for `<i>.log`.
        api_key: Key the server asks for, or None.
        connections: Number of connections that are open now.
        on_failed: Called once when a client failed and no connection is open any more.
        on_finished: Called once when every client exited with 0 and no connection is open any more.
        patience: Seconds that a client may take to exit after the server closed its connections.
        term_patience: Seconds between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        commands: Sequence[str],
        *,
        logs: Path,
        api_key: str | None,
        connections: Callable[[], int],
        on_failed: Callable[[], None],
        on_finished: Callable[[], None],
        patience: float = 30.0,
        term_patience: float = 5.0,
    ):
        self._commands, self._logs, self._api_key = tuple(commands), logs, api_key
        self._connections, self._on_failed, self._on_finished = connections, on_failed, on_finished
        self._patience, self._term_patience = patience, term_patience
        self._children: list[Child] = []
        self._watchers: list[asyncio.Task[None]] = []
        self._concluded = False
        self._guard: Guard | None = None
        self._port, self._count = 0, 0
        self._strangers = False  # some connection was of nobody that this machine knows as one of the clients

    def start(self, host: str, port: int) -> None:
        """Starts every client; called in the event loop once the server listens on `host` and `port`."""
        address, self._port = reachable(host), port
        if self._commands:
            self._guard = _guard()
        for offset, command in enumerate(self._commands):
            child = Child(filled(command, address, port), self._logs / f"{offset}.log", self._guard)
            environment = client_environment(os.environ, host=address, port=port, api_key=self._api_key, offset=offset)
            self._children.append(child)
            self._watchers.append(asyncio.get_running_loop().create_task(self._watch(child, environment)))

    def connections_changed(self) -> None:
        """Notes who has come, and draws the conclusion where the last connection just closed."""
        before, self._count = self._count, self._connections()
        if self._count > before:
            self._look_who_came()
        if self._concluded or not self._children or self._count:
            return
        failed = any(child.failed for child in self._children)
        if failed or all(child.exit_code == 0 for child in self._children):
            self._concluded = True
            (self._on_failed if failed else self._on_finished)()

    async def finish(self, *, at_once: bool = False) -> list[Child]:
        """Waits for the clients after the server's close, ends those that stay, and returns those that failed.

        Who never connected has not heard that the run is over: it is ended at once, and has not failed.

        Args:
            at_once: Ask them to end without waiting first.
        """
        self._concluded = True
        await self._dismiss_absent()
        await self._wait(0.0 if at_once else self._patience)
        for number, patience in ((signal.SIGTERM, self._term_patience), (signal.SIGKILL, None)):
            for index, child in enumerate(self._children):
                if child.exit_code is None:
                    logger.warning("client %d does not exit: sending %s", index, number.name)
                    child.end(number)
            await self._wait(patience)
        self.sweep()
        if self._guard is not None:
            self._guard.close()
        return [child for child in self._children if child.failed]

    def hurry(self) -> None:
        """Ends every client at once: `finish` need not wait for any."""
        self._patience = self._term_patience = 0.0
        for child in self._children:
            if child.exit_code is None:
                child.end(signal.SIGKILL)

    def sweep(self) -> None:
        """Kills whatever is left of the clients' process groups."""
        for child in self._children:
            child.sweep()

    def report(self, child: Child) -> str:
        """How a client ended, with the last lines of its output."""
        head = f"client {self._children.index(child)} {child.outcome()}: {child.command}"
        lines = child.tail()
        if not lines:
            return f"{head}\n  (it wrote nothing to {child.log})"
        return "\n".join([f"{head}\n  last lines of {child.log}:", *(f"  | {line}" for line in lines)])

    async def _watch(self, child: Child, environment: dict[str, str]) -> None:
        await child.run(environment)
        if child.failed and not self._concluded:
            logger.error("client %d %s: %s", self._children.index(child), child.outcome(), child.command)
        self.connections_changed()

    def _look_who_came(self) -> None:
        """Notes which clients have connections.

        One that is none of theirs may be of a client that a command here has started on another machine, or in a
        container; then anybody may have connected.
        """
        if self._strangers or all(child.has_connected for child in self._children):
            return
        seen = connections_to(self._port)
        if seen is None:
            self._strangers = True
            return
        accounted = 0
        for child in self._children:
            own = child.connections_among(seen.clients)
            child.has_connected = child.has_connected or own > 0
            accounted += own
        self._strangers = accounted < min(seen.total, self._count)

    async def _dismiss_absent(self) -> None:
        absent = [
            index
            for index, child in enumerate(self._children)
            if child.exit_code is None and not (child.has_connected or self._strangers)
        ]
        for index in absent:
            logger.info("client %d had not connected and is ended with the run", index)
            self._children[index].dismiss()
        await self._wait(self._term_patience, absent)
        for index in absent:
            self._children[index].end(signal.SIGKILL)
        await self._wait(None, absent)

    async def _wait(self, patience: float | None, of: Sequence[int] | None = None) -> None:
        watchers = self._watchers if of is None else [self._watchers[index] for index in of]
        running = [watcher for watcher in watchers if not watcher.done()]
        if running:
            await asyncio.wait(running, timeout=patience)


def _guard() -> Guard | None:
    try:
        return Guard()
    except OSError as error:
        logger.warning("clients would outlive this process if it were killed: %s", error.strerror or error)
        return None
