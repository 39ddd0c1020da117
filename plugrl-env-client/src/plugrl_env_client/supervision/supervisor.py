"""Several processes, each with its share of the environments and its own connections (field lesson 10)."""

import contextlib
import dataclasses
import logging
import math
import multiprocessing.connection
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from plugrl_env_client.client import Finished, shares
from plugrl_env_client.link.interrupts import Interrupted, Interrupts
from plugrl_env_client.options import ClientOptions, Run
from plugrl_env_client.reporting.processes import ProcessStatus, total
from plugrl_env_client.rollout import Outcome
from plugrl_env_client.supervision.child import Child, Failure

GRACE_SECONDS = 10.0  # from SIGTERM to SIGKILL: a close handshake takes 5
LINGER_SECONDS = 10.0  # from one child's hearing that the server has stopped to our ending the others
_TICK = 1.0  # between two looks at the children, if nothing happens

_logger = logging.getLogger(__name__)

Show = Callable[[Sequence[ProcessStatus]], None]


@dataclasses.dataclass(frozen=True)
class Supervised:
    """How a run of several processes ended.

    Attributes:
        finished: all of them together.
        processes: each of them.
    """

    finished: Finished
    processes: Sequence[ProcessStatus]


def supervise(run: Run, *, interrupts: Interrupts, show: Show, interval: float) -> Supervised:
    """Run `run.options.num_procs` processes until all have ended, or one has failed for good.

    A child that dies or hangs is named, with its last lines, and started again as long as `--restart-failed` allows;
    then the others are ended. SIGTERM or Ctrl-C ends all of them, a second one at once. What a child prints goes to
    <folder>/<index>.log; where the run has no folder, to one that is removed after a run without failures.

    Args:
        run: the whole.
        interrupts: set when the user wants the client to end.
        show: called with the state of all processes every `interval` seconds.
        interval: in seconds.
    """
    with _logs(run.options) as logs:
        children = [Child(run, share, logs.path / f"{share.index}.log") for share in shares(run.options)]
        supervisor = _Supervisor(children, run.options.restart_failed)
        try:
            with contextlib.suppress(Interrupted):
                supervisor.watch(interrupts, show, interval)
            supervisor.end()
        finally:  # a second signal, or a mistake of ours
            for child in children:
                child.kill()
        finished = supervisor.finished(interrupted=interrupts.requested)
        logs.are_wanted = finished.error is not None and not finished.usage
    return Supervised(finished, [child.status for child in children])


class _Supervisor:
    def __init__(self, children: Sequence[Child], restarts: int) -> None:
        self._children = children
        self._restarts = restarts
        self._used = 0
        self._error: str | None = None
        self._usage = False  # whether that was a mistake in the flags
        self._until = math.inf  # then those who have not heard that the server has stopped are ended, too

    def watch(self, interrupts: Interrupts, show: Show, interval: float) -> None:
        """Look after the children until one has failed for good, or nothing is left to look after.

        Raises:
            Interrupted: the user wants the client to end.
        """
        self._start(self._children)
        now = time.monotonic()
        due = now + interval
        while self._goes_on(now):
            with interrupts.waiting():
                _wait(self._children, min(due - now, _TICK))
            before, now = now, time.monotonic()
            # While this process was stopped, or the machine was asleep, no child could be heard.
            self._look(min(now - before, 2 * _TICK))
            self._start([child for child in self._children if child.is_due(now)])
            if now >= due:
                due = now + interval
                show([child.status for child in self._children])

    def end(self) -> None:
        """Ask whoever is left to end, and kill who has not done so in time.

        Who writes what it has recorded is waited for: it gives up itself when the disk does nothing (--hang-timeout).
        """
        for child in self._children:
            child.terminate()
        until = time.monotonic() + GRACE_SECONDS
        named: set[Child] = set()
        while any(child.is_alive for child in self._children) and (left := until - time.monotonic()) > 0:
            _wait(self._children, min(left, _TICK))
            for child in self._children:
                child.look(0.0)
            writing = {child for child in self._children if child.is_writing}
            if writing:
                until = time.monotonic() + GRACE_SECONDS
            for child in writing - named:
                _logger.info("%s writes what it has recorded; another signal ends it at once", child.name)
            named |= writing
        for child in self._children:
            if child.is_alive:
                _logger.warning("%s did not end within %g s and is killed", child.name, GRACE_SECONDS)
                child.kill(f"killed: did not end within {GRACE_SECONDS:g} s")

    def finished(self, *, interrupted: bool) -> Finished:
        """How the children ended, taken together."""
        counted = total([child.status for child in self._children])
        if self._error is not None:
            return Finished(Outcome.FAILED, counted, self._error, usage=self._usage)
        if interrupted:
            return Finished(Outcome.INTERRUPTED, counted)
        return Finished(Outcome.SERVER_STOPPED if self._server_has_stopped() else Outcome.LIMIT, counted)

    def _goes_on(self, now: float) -> bool:
        return self._error is None and now < self._until and not all(child.is_over for child in self._children)

    def _start(self, children: Sequence[Child]) -> None:
        for child in children:
            try:
                child.start()
            except OSError as err:
                self._error = self._error or f"{child.name} cannot be started: {err.strerror or err}"

    def _look(self, passed: float) -> None:
        for child in self._children:
            failure = child.look(passed)
            if failure is not None:
                self._failed(child, failure)
        if self._until == math.inf and self._server_has_stopped():
            self._until = time.monotonic() + LINGER_SECONDS

    def _failed(self, child: Child, failure: Failure) -> None:
        told = "".join(f"\n    {line}" for line in failure.last_lines)
        told = f"{failure.text}. Its last lines, from {child.log}:{told}" if told else failure.text
        if failure.final or self._used == self._restarts or self._until < math.inf:
            usage = child.finished is not None and child.finished.usage
            if not usage:  # a mistake in the flags is the same in all processes, and said at the end
                _logger.error("%s", told)
            if self._error is None:
                self._error, self._usage = failure.text, usage
            return
        self._used += 1
        delay = child.restart_later()
        _logger.error(
            "%s\nIt is started again in %g s: restart %d of --restart-failed %d",
            told,
            delay,
            self._used,
            self._restarts,
        )

    def _server_has_stopped(self) -> bool:
        finished = (child.finished for child in self._children if child.finished is not None)
        return any(how.outcome is Outcome.SERVER_STOPPED for how in finished)


def _wait(children: Sequence[Child], seconds: float) -> None:
    """Until a child has something to say, or has ended, or is due to be started again; at most so long."""
    now = time.monotonic()
    seconds = min([seconds, *(child.due - now for child in children if child.due is not None)])
    multiprocessing.connection.wait([handle for child in children for handle in child.handles], max(seconds, 0.0))


@dataclasses.dataclass
class _Logs:
    path: Path
    are_wanted: bool = True


@contextlib.contextmanager
def _logs(options: ClientOptions) -> Iterator[_Logs]:
    """The folder for what the children print."""
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        for log in options.folder.glob("[0-9]*.log"):  # of an earlier run of this name
            log.unlink()
        yield _Logs(options.folder)
        return
    logs = _Logs(Path(tempfile.mkdtemp(prefix="plugrl-env-client-")))
    _logger.info("what the processes print: %s/<process>.log", logs.path)
    try:
        yield logs
    finally:
        if not logs.are_wanted:
            shutil.rmtree(logs.path, ignore_errors=True)
