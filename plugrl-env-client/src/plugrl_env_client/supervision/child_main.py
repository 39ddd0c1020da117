"""A child process's whole life."""

import faulthandler
import io
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from plugrl_env_client.client import Finished, Share, run_client
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.options import Run
from plugrl_env_client.registration import import_modules
from plugrl_env_client.reporting.logs import set_up_logs
from plugrl_env_client.reporting.tally import nothing_yet
from plugrl_env_client.rollout import Outcome
from plugrl_env_client.supervision.messages import REPORT_SECONDS
from plugrl_env_client.supervision.reporter import Reporter

# Each has a child write to its log where each of its threads is. The first does so with the interpreter's lock, since
# that can be fatal while a thread runs; the second at once, where somebody keeps the lock.
SHOW_STACKS, SHOW_STACKS_AT_ONCE = signal.SIGUSR1, signal.SIGUSR2


def child_main(run: Run, share: Share, pipe: Connection, log: Path) -> None:
    """Run a share, tell the parent how it goes, and exit: 0 where it ended well, 1 where it did not.

    The process leads a session of its own, so that whatever its envs start ends with it, and a Ctrl-C meant for all
    reaches the parent alone, which passes it on as SIGTERM.

    Args:
        run: the whole.
        share: what to run of it.
        pipe: to the parent.
        log: standard output and error go there.
    """
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by the parent until here
    _redirect(log)
    faulthandler.enable()
    faulthandler.register(SHOW_STACKS_AT_ONCE)
    _show_stacks_on(SHOW_STACKS)
    reporter = Reporter(pipe)
    set_up_logs(run.options.log_level, quiet=False, file=True, also=reporter.log_handler())
    with Interrupts(patient=True).handling(signal.SIGTERM) as interrupts, reporter.reporting():
        finished = _run(run, share, interrupts, reporter)
        reporter.finished(finished)
        sys.exit(0 if finished.error is None else 1)


def _run(run: Run, share: Share, interrupts: Interrupts, reporter: Reporter) -> Finished:
    try:
        import_modules(run.options.modules)
        return run_client(
            run,
            share,
            interrupts=interrupts,
            watch=reporter.watch,
            show=reporter.recorded,
            interval=REPORT_SECONDS,
            writing=reporter.writing,
        )
    except EnvError as err:
        return Finished(Outcome.FAILED, nothing_yet(share.num_envs), str(err), final=True, usage=True)


def _show_stacks_on(number: signal.Signals) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def show() -> None:
        while received := os.read(reading, 1):
            if received[0] == number:
                faulthandler.dump_traceback()

    threading.Thread(target=show, name="stacks", daemon=True).start()


def _redirect(log: Path) -> None:
    """Standard output and error of this process are added to a file, line by line."""
    with log.open("a", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
