"""The parent's hold on one share of the run: the process that has it, and the next one if that fails."""

import contextlib
import dataclasses
import logging
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from plugrl_env_client.client import Finished, Share
from plugrl_env_client.options import Run
from plugrl_env_client.reporting.logs import last_lines
from plugrl_env_client.reporting.processes import ProcessStatus
from plugrl_env_client.reporting.tally import nothing_yet
from plugrl_env_client.rollout import Outcome
from plugrl_env_client.supervision.child_main import SHOW_STACKS, SHOW_STACKS_AT_ONCE, child_main
from plugrl_env_client.supervision.messages import Report, Said
from plugrl_env_client.supervision.pulse import Pulse

EXIT_SECONDS = 10.0  # from the last thing a child says to its exit
FIRST_DELAY, LONGEST_DELAY = 1.0, 60.0  # before a restart; doubled for each that did not live for LONGEST_DELAY
_BEFORE_FIRST_STEP = 5  # times --hang-timeout: simulators take long to load
_STACKS_SECONDS = 1.0  # at most, for a hung child to write down where it hangs, on each of two signals
_STACKS_LINES = 100  # of all threads
_STACKS_PAUSE = 0.2  # after which nothing more of that is to come, on a busy machine too
_NEWS_SECONDS = 5.0  # of silence are no news yet

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a child's end was not a good one.

    Attributes:
        text: names the child, for the user.
        final: the next one would end in the same way.
        last_lines: of its output.
    """

    text: str
    final: bool
    last_lines: list[str]


class Child:
    """One share of the run.

    Args:
        run: the whole.
        share: what this child runs of it.
        log: its output goes there.

    Attributes:
        finished: how the process ended in its own words; None where it has not, or was silent.
        log: the same.
        due: when it is to be started again, on the clock of `time.monotonic`; None: it need not be.
    """

    def __init__(self, run: Run, share: Share, log: Path) -> None:
        self.finished: Finished | None = None
        self.log = log
        self.due: float | None = None
        self._run = run
        self._share = share
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._pulse = Pulse(run.options.num_groups)
        self._earlier = self._snapshot = nothing_yet(share.num_envs)  # of the lives before, and of this one
        self._lives = 0
        self._began = 0.0
        self._short_lives = 0
        self._state = "not started"
        self._asked = False  # to end
        self._wrote = -math.inf  # when it said last that it is writing

    @property
    def name(self) -> str:
        """For the user."""
        return f"client process {self._share.index} ({self._share.envs})"

    @property
    def is_alive(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self._process is None and self.due is None

    @property
    def is_writing(self) -> bool:
        """Whether it has just said that it waits for what it records to be written."""
        return self.is_alive and time.monotonic() - self._wrote < _NEWS_SECONDS

    def is_due(self, now: float) -> bool:
        """Whether it is to be started again by now."""
        return self.due is not None and now >= self.due

    @property
    def status(self) -> ProcessStatus:
        """How it is doing."""
        return ProcessStatus(
            self._share.index,
            self._share.first_env,
            self._describe(),
            self._earlier.followed_by(self._snapshot),
            restarts=max(self._lives - 1, 0),
            is_alive=self.is_alive,
        )

    @property
    def handles(self) -> "list[Connection | int]":
        """What becomes ready when the process has something to say, or has ended."""
        handles: list[Connection | int] = []
        if self._process is not None:
            handles.append(self._process.sentinel)
            if self._pipe is not None:
                handles.append(self._pipe)
        return handles

    def start(self) -> None:
        """Start the process.

        Raises:
            OSError: the system does not let us.
        """
        self._lives += 1
        self.due = None
        self._earlier = self._earlier.followed_by(self._snapshot)
        self._snapshot = nothing_yet(self._share.num_envs)
        self._pulse = Pulse(self._run.options.num_groups)
        self._wrote = -math.inf
        self.finished = None
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe(duplex=False)
        process = context.Process(target=child_main, args=(self._run, self._left_to_do(), theirs, self.log))
        try:
            _start_unheard(process)
        finally:
            theirs.close()
        self._process = process
        self._began = time.monotonic()

    def look(self, passed: float) -> Failure | None:
        """Take in what the process has said, and whether it has ended or hangs.

        Args:
            passed: seconds since the last look.

        Returns:
            What is to be said where it has failed; it is dead then, or as good as.
        """
        if self._process is None:
            return None
        self._hear()
        self._pulse.passed(passed)
        if not self._process.is_alive():
            return self._ended(self._process)
        if self.finished is None:
            return self._hangs(self._process)
        if self._pulse.quiet > EXIT_SECONDS:
            _logger.warning("%s does not exit and is killed", self.name)
            self.kill()
        return None

    def restart_later(self) -> float:
        """Have it started again; returns in how many seconds: the sooner it failed, the later."""
        now = time.monotonic()
        self._short_lives = 0 if now - self._began > LONGEST_DELAY else self._short_lives + 1
        delay = min(FIRST_DELAY * 2.0 ** max(self._short_lives - 1, 0), LONGEST_DELAY)
        self.due = now + delay
        return delay

    def terminate(self) -> None:
        """Ask it to end, that is to send a close frame and to say what it has counted; it isn't started again."""
        self.due = None
        self._asked = True
        if self._process is not None:
            self._process.terminate()

    def kill(self, state: str = "killed") -> None:
        """End it at once, with all that its envs have started.

        Args:
            state: how it has ended then, unless it has said so itself.
        """
        process = self._process
        if process is None:
            return
        _kill_session(process)
        process.kill()
        process.join()
        self._ended(process)
        if self.finished is None:
            self._state = state

    def _hear(self) -> None:
        try:
            while self._pipe is not None and self._pipe.poll():
                self._take(self._pipe.recv())
        except (EOFError, OSError):  # its end is closed
            self._hang_up()

    def _take(self, said: "Report | Said | Finished") -> None:
        if isinstance(said, Said):
            _logger.log(said.level, "[%d] %s", self._share.index, said.text)
        elif self.finished is not None:  # a report that was overtaken
            return
        elif isinstance(said, Report):
            self._pulse.heard(said.vitals)
            self._wrote = time.monotonic() if said.writing else -math.inf
            if len(said.snapshot.env_steps) == self._share.num_envs:  # else it is still making its envs
                self._snapshot = said.snapshot
        else:
            self._pulse = Pulse()  # which now measures how long it takes to exit
            self.finished = said
            self._snapshot = said.snapshot

    def _hang_up(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _ended(self, process: SpawnProcess) -> Failure | None:
        """The process is dead: what is to be said of it."""
        _kill_session(process)  # what its envs have left behind
        self._hear()
        self._hang_up()
        self._process = None
        how = _exit_text(process.exitcode)
        finished = self.finished
        if finished is None:
            early = self._asked and process.exitcode == -signal.SIGTERM  # it could not even catch our signal yet
            self._state = Outcome.INTERRUPTED.value if early else f"failed: {how}"
            self._snapshot = self._snapshot.cut_off(f"the process {how}")
            return Failure(f"{self.name} {how}", False, last_lines(self.log))
        if finished.error is not None:
            self._state = f"failed: {finished.error}"
            lines = [] if finished.final else last_lines(self.log)
            return Failure(f"{self.name}: {finished.error}", finished.final, lines)
        if finished.outcome is Outcome.INTERRUPTED and not self._asked:
            how = _exit_text(-signal.SIGTERM)  # somebody else's: there is no other signal that it heeds
            self._state = f"failed: {how}"
            return Failure(f"{self.name} {how}", False, last_lines(self.log))
        self._state = finished.outcome.value
        if process.exitcode:
            _logger.warning("%s %s, after its work was done", self.name, how)
        return None

    def _hangs(self, process: SpawnProcess) -> Failure | None:
        """Kill the process if it has shown no sign of life for too long."""
        limit = self._run.options.hang_seconds
        if limit is None:
            return None
        if not self._pulse.started:
            limit *= _BEFORE_FIRST_STEP
        if self._pulse.quiet <= limit:
            return None
        self._have_stacks_written(process)
        first = "" if self._pulse.started else "first "
        how = f"hung: no {first}env step for {limit:g} s, and it was not waiting for the server"
        self.kill(f"failed: {how}")
        return Failure(f"{self.name} {how}", False, last_lines(self.log, _STACKS_LINES))

    def _have_stacks_written(self, process: SpawnProcess) -> None:
        before = size = _size(self.log)
        for number in (SHOW_STACKS, SHOW_STACKS_AT_ONCE):
            until = time.monotonic() + _STACKS_SECONDS
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, number)
            while process.is_alive() and time.monotonic() < until:
                process.join(_STACKS_PAUSE)
                last, size = size, _size(self.log)
                if before < last == size:
                    return

    def _left_to_do(self) -> Share:
        """The share, without the steps and episodes of earlier lives."""
        done, share = self._earlier, self._share
        return dataclasses.replace(
            share,
            num_steps=self._rest(share.num_steps, done.steps),
            num_episodes=self._rest(share.num_episodes, done.episodes),
        )

    def _rest(self, total: int | None, done: int) -> int | None:
        return None if total is None else max(total - done, self._run.options.num_groups)

    def _describe(self) -> str:
        if self._process is None:
            return self._state if self.due is None else f"restarts in {max(self.due - time.monotonic(), 0.0):.0f} s"
        if self.finished is not None:
            return "ending"
        if self._pulse.waits:
            return "writing" if self.is_writing else "waiting"
        if not self._pulse.started:
            return "starting"
        return "running" if self._pulse.quiet < _NEWS_SECONDS else f"no step for {self._pulse.quiet:.0f} s"


def _start_unheard(process: SpawnProcess) -> None:
    """Start it so that a Ctrl-C on the terminal, which reaches it too, waits until `child_main` ignores it."""
    resource_tracker.ensure_running()  # its start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _kill_session(process: SpawnProcess) -> None:
    """Kill whatever is left of the session that the process leads, if it has come so far."""
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _exit_text(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exited with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"was ended by signal {-code}"
