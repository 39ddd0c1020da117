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

    def start(self, host: str, port: int) -> None:
        """Starts every client; called in the event loop once the server listens on `host` and `port`."""
        address = reachable(host)
        for offset, command in enumerate(self._commands):
            child = Child(filled(command, address, port), self._logs / f"{offset}.log")
            environment = client_environment(os.environ, host=address, port=port, api_key=self._api_key, offset=offset)
            self._children.append(child)
            self._watchers.append(asyncio.get_running_loop().create_task(self._watch(child, environment)))

    def connections_changed(self) -> None:
        """Draws the conclusion where the last connection just closed."""
        if self._concluded or not self._children or self._connections():
            return
        failed = any(child.failed for child in self._children)
        if failed or all(child.exit_code == 0 for child in self._children):
            self._concluded = True
            (self._on_failed if failed else self._on_finished)()

    async def finish(self, *, at_once: bool = False) -> list[Child]:
        """Waits for the clients after the server's close, ends those that stay, and returns those that failed.

        Args:
            at_once: Ask them to end without waiting first.
        """
        self._concluded = True
        await self._wait(0.0 if at_once else self._patience)
        for number, patience in ((signal.SIGTERM, self._term_patience), (signal.SIGKILL, None)):
            for index, child in enumerate(self._children):
                if child.exit_code is None:
                    logger.warning("client %d does not exit: sending %s", index, number.name)
                    child.end(number)
            await self._wait(patience)
        self.sweep()
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

    async def _wait(self, patience: float | None) -> None:
        running = [watcher for watcher in self._watchers if not watcher.done()]
        if running:
            await asyncio.wait(running, timeout=patience)
