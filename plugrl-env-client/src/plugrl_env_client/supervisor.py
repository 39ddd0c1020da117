"""Several processes, each with its share of the environments and its own connection (field lesson 10)."""

import contextlib
import dataclasses
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from plugrl_env_client.client import Finished, Share, run_client, shares
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.link.interrupts import Interrupted, Interrupts
from plugrl_env_client.options import Run
from plugrl_env_client.registration import import_modules
from plugrl_env_client.reporting.logs import set_up_logs
from plugrl_env_client.reporting.tally import Snapshot, together
from plugrl_env_client.rollout import Outcome

REPORT_SECONDS = 1.0  # between two counts that a child sends
GRACE_SECONDS = 10.0  # from SIGTERM to SIGKILL


@dataclasses.dataclass
class _Child:
    share: Share
    process: SpawnProcess
    pipe: Connection
    snapshot: Snapshot | None = None
    finished: Finished | None = None
    silent: bool = False  # it has closed its end of the pipe

    @property
    def name(self) -> str:
        first, last = self.share.first_env, self.share.first_env + self.share.num_envs - 1
        return f"client process {self.share.index} (envs {first} to {last})"

    def hear(self) -> None:
        """Take in what the child has sent."""
        try:
            while not self.silent and self.pipe.poll():
                said = self.pipe.recv()
                if isinstance(said, Finished):
                    self.finished = said
                    said = said.snapshot
                self.snapshot = said
        except (EOFError, OSError):
            self.silent = True

    def failure(self) -> str | None:
        """Why the child's end was not a good one; None where it was, or where it has not ended."""
        if self.process.is_alive():
            return None
        if self.finished is not None and self.finished.error is not None:
            return f"{self.name}: {self.finished.error}"
        if self.finished is None or self.process.exitcode != 0:
            return f"{self.name} died with exit code {self.process.exitcode}"
        return None


def supervise(run: Run, *, interrupts: Interrupts, show: Callable[[Snapshot], None], interval: float) -> Finished:
    """Run `run.options.num_procs` processes until all have ended, or one has failed.

    A child that dies is noticed at once; the others are ended, and the error names it. SIGTERM or Ctrl-C ends all of
    them. Each child writes its log to <folder>/<index>.log where the run has a folder; otherwise its lines start with
    its number.
    """
    context = multiprocessing.get_context("spawn")
    children: list[_Child] = []
    error: str | None = None
    try:
        for share in shares(run.options):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_child_main, args=(run, share, theirs))
            process.start()
            theirs.close()
            children.append(_Child(share, process, ours))
        with contextlib.suppress(Interrupted):
            error = _watch(children, interrupts, show, interval)
    finally:
        _end(children)
    return _result(children, error, interrupted=interrupts.requested)


def _watch(
    children: list[_Child], interrupts: Interrupts, show: Callable[[Snapshot], None], interval: float
) -> str | None:
    """Wait until every child has ended well (None), or one has not (what is to be said of it)."""
    due = time.monotonic() + interval
    while alive := [child for child in children if child.process.is_alive()]:
        with interrupts.waiting():
            pipes = [child.pipe for child in alive if not child.silent]
            multiprocessing.connection.wait([*pipes, *(child.process.sentinel for child in alive)])
        for child in alive:
            child.hear()
        error = _first_failure(children)
        if error is not None:
            return error
        if time.monotonic() >= due:
            due = time.monotonic() + interval
            show(together([child.snapshot for child in children if child.snapshot is not None]))
    return _first_failure(children)


def _first_failure(children: list[_Child]) -> str | None:
    return next((text for child in children if (text := child.failure()) is not None), None)


def _end(children: list[_Child]) -> None:
    for child in children:
        if child.process.is_alive():
            child.process.terminate()
    until = time.monotonic() + GRACE_SECONDS
    for child in children:
        child.hear()
        child.process.join(max(until - time.monotonic(), 0.0))
        if child.process.is_alive():
            child.process.kill()
            child.process.join()
        child.hear()
        child.pipe.close()


def _result(children: list[_Child], error: str | None, *, interrupted: bool) -> Finished:
    counted = together([child.snapshot for child in children if child.snapshot is not None])
    if error is not None:
        return Finished(Outcome.FAILED, counted, error)
    outcomes = {child.finished.outcome for child in children if child.finished is not None}
    if interrupted:
        return Finished(Outcome.INTERRUPTED, counted)
    return Finished(Outcome.SERVER_STOPPED if Outcome.SERVER_STOPPED in outcomes else Outcome.LIMIT, counted)


def _child_main(run: Run, share: Share, pipe: Connection) -> None:
    """A child's whole life. Only SIGTERM ends it: Ctrl-C reaches the parent too, which passes it on as SIGTERM."""
    options = run.options
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if options.folder is not None:
        _redirect(options.folder / f"{share.index}.log")
    set_up_logs(options.log_level, quiet=options.quiet, process=share.index if options.folder is None else None)
    with Interrupts().handling(signal.SIGTERM) as interrupts:

        def tell(snapshot: Snapshot) -> None:
            try:
                pipe.send(snapshot)
            except OSError:  # the parent is gone
                interrupts.requested = True

        try:
            import_modules(options.modules)
            finished = run_client(run, share, interrupts=interrupts, show=tell, interval=REPORT_SECONDS)
        except EnvError as err:
            finished = Finished(Outcome.FAILED, together([]), str(err))
    with contextlib.suppress(OSError):
        pipe.send(finished)
    sys.exit(0 if finished.error is None else 1)


def _redirect(log: Path) -> None:
    """Standard output and error of this process go to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
