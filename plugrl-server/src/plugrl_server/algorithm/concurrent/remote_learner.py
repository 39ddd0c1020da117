"""A learner that runs in a process of its own, as the server's process sees it."""

import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.util import Finalize
from typing import Any

import torch

from plugrl_server.algorithm.concurrent import channel, learner_process
from plugrl_server.algorithm.concurrent.board import HANDLED, UPDATES, Board, BoardError
from plugrl_server.algorithm.concurrent.learner import BuildLearner, Learner, whole_state
from plugrl_server.learning.replay_buffer import KEY
from plugrl_server.learning.trees import Tree

MAX_BEHIND = 250
"""Updates that may be ordered and not taken yet; beyond, `meet` waits: the envs then idle, and nobody else."""
MAX_BYTES = 64 * 2**20
"""Bytes of orders that may be under way before `meet` waits."""
POLL_INTERVAL = 0.02
"""Seconds between two looks at how far it has come, while the server waits for it."""
GRACE = 5.0
"""Seconds that the process has to end before it is killed."""
SIGNALS = {getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)}
"""Of these the server decides what they mean; the learner, in the same process group, never receives them."""


class LearnerError(Exception):
    """The learner process failed or is gone; the text says how."""


class RemoteLearner:
    """Takes the place of a learner that was built in this process; this one's policy goes on acting.

    Orders travel in one stream and are obeyed in order, so that the learner becomes exactly what it would have become
    here, update for update; it only happens later. `add` and `update` give the order and return. Who gives them calls
    `meet` when it `has_news`, which takes over the newest weights, and waits while more than `MAX_BEHIND` updates or
    `MAX_BYTES` are under way. Reading or loading the state waits until every order before it is obeyed.

    Args:
        local: The learner whose place it takes, with the state to begin with.
        build: Builds such a learner in the other process.

    Attributes:
        policy: The policy that acts; it lags behind the learner's.
        version: Version of its weights.
        process: The other process.

    Raises:
        LearnerError: The process does not start, or cannot build the learner.
    """

    def __init__(self, local: Learner, build: BuildLearner) -> None:
        self.policy = local.policy
        self.version = 0
        self._local = local
        self._ordered = local.updates
        self._added = local.replay.added
        self._bytes = 0
        self._threads = 1
        self._reports: list[tuple[int, dict[str, float]]] = []
        self._state: dict[str, Any] | None = None
        context = multiprocessing.get_context("spawn")
        self._board = Board(context, local.policy.state_dict())
        theirs, self._orders = context.Pipe(duplex=False)
        self._answers, answers = context.Pipe(duplex=False)
        self.process = context.Process(
            target=learner_process.run, args=(build, self._board, theirs, answers), name="learner", daemon=True
        )
        _start(self.process)
        theirs.close()
        answers.close()
        self.close = Finalize(self, _end, (self.process, self._orders, self._answers), exitpriority=10)
        self._load(whole_state(local))

    # Orders ------------------------------------------------------------------------------------------------------

    def add(self, *, nodes: Sequence[tuple[int, str]], **columns: Tree) -> list[tuple[int, str]]:
        """Have frames stored; returns the nodes that the replay buffer will give them.

        Raises:
            LearnerError: The process is gone.
        """
        self._order("add", {"nodes": nodes, **columns})
        first, self._added = self._added, self._added + len(nodes)
        return [(number, KEY) for number in range(first, self._added)]

    def update(self, n: int = 1) -> None:
        """Have n updates taken.

        Raises:
            LearnerError: The process is gone.
        """
        if (threads := torch.get_num_threads()) != self._threads:
            self._threads = threads
            self._order("threads", threads)
        self._order("update", n)
        self._ordered += n

    def meet(self, seconds: float = math.inf) -> None:
        """Wait while it is too far behind, but no longer than that; take over the weights and what was reported.

        Raises:
            LearnerError: The process is gone, or an update failed.
        """
        self._wait_while(self._is_far_behind, seconds)
        self._take_over()

    def catch_up(self, seconds: float = math.inf) -> None:
        """Wait until no update is behind, but no longer than that; take over the weights and what was reported.

        Raises:
            LearnerError: The process is gone, or an update failed.
        """
        self._wait_while(lambda: self.behind > 0, seconds)
        if not self.behind:
            self._order("publish", None)
            self._wait_for("published")
        self._take_over()

    # Reading -----------------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether there are newer weights, or it is too far behind to go on: call `meet`."""
        return self._board.version != self.version or self._is_far_behind()

    @property
    def updates(self) -> int:
        """Updates taken so far."""
        return int(self._board.counters[UPDATES])

    @property
    def behind(self) -> int:
        """Updates that are ordered and not taken yet."""
        return self._ordered - self.updates

    def metrics(self) -> dict[str, float]:
        """Return the means over the updates reported since the last call, and how far behind the learner is."""
        reports, self._reports = self._reports, []
        means = {}
        for name in dict.fromkeys(name for _, metrics in reports for name in metrics):
            told = [(updates, metrics[name]) for updates, metrics in reports if name in metrics]
            means[name] = sum(updates * value for updates, value in told) / sum(updates for updates, _ in told)
        return {**means, "time/updates_behind": float(self.behind)}

    def state_dict(self) -> dict[str, Any]:
        """Return the learner's state once it has obeyed; the acting policy takes over its weights as well.

        So that of the policy and `optimizer_state`, read after this and before the next order, belong to it.

        Raises:
            LearnerError: The process is gone, or an update failed.
        """
        self._order("state", None)
        self._state = state = self._wait_for("state")
        self._take_over()
        self.policy.load_state_dict(state["policy"])
        of_learner: dict[str, Any] = state["learner"]
        return of_learner

    def optimizer_state(self) -> dict[str, Any]:
        """Return the state of the optimizers that belongs to the last `state_dict`."""
        return self._local.optimizer_state() if self._state is None else self._state["optimizer"]

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """Keep the optimizers' state for `load_state_dict`.

        Raises:
            ValueError: It is the state of other networks.
        """
        self._local.load_optimizer_state(state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the learner go on from this state, the policy's as it is now, and the optimizers' loaded before.

        Raises:
            ValueError: The learner refused it, and says why.
            LearnerError: The process is gone.
        """
        optimizer = self._local.optimizer_state()
        self._load({"policy": self.policy.state_dict(), "optimizer": optimizer, "learner": state})
        self._added = state["replay"]["added"]

    def _is_far_behind(self) -> bool:
        return self.behind > MAX_BEHIND or self._bytes - int(self._board.counters[HANDLED]) > MAX_BYTES

    # The channel -------------------------------------------------------------------------------------------------

    def _load(self, state: dict[str, Any]) -> None:
        self._order("load", state)
        self._wait_for("loaded")
        self._ordered, self.version = self.updates, self._board.version
        self._reports.clear()

    def _order(self, order: str, what: Any) -> None:
        self._state = None
        try:
            self._bytes += channel.send(self._orders, (order, what))
        except OSError:
            while True:  # what it said last tells why
                self._read_answer()

    def _wait_while(self, condition: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while condition() and time.monotonic() < until:
            if self._answers.poll(POLL_INTERVAL):
                self._read_answer()

    def _wait_for(self, kind: str) -> Any:
        while (answer := self._read_answer())[0] != kind:
            pass
        return answer[1]

    def _read_answer(self) -> tuple[str, Any]:
        """Wait for an answer; a report is kept."""
        try:
            (kind, what), _ = channel.receive(self._answers)
        except (EOFError, OSError):
            raise LearnerError(f"the learner process {_how_it_ended(self.process)}") from None
        if kind == "failed":
            raise LearnerError(f"in the learner process: {what}")
        if kind == "refused":
            raise ValueError(what)
        if kind == "report":
            self._reports.append(what)
        return kind, what

    def _take_over(self) -> None:
        """Take over the newest weights, and read what was reported up to them."""
        if self._board.version == self.version:
            return
        while self._answers.poll():
            self._read_answer()
        try:
            self.version = self._board.read_into(self.policy)
        except BoardError as error:
            raise LearnerError(str(error)) from None


def _start(process: SpawnProcess) -> None:
    """Start a process that will not receive the signals of its group: it inherits what is blocked here meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: SpawnProcess, orders: Connection, answers: Connection) -> None:
    """Close the channel, on which the process ends, and see that it has."""
    orders.close()
    process.join(GRACE)
    if process.is_alive():
        process.kill()
        process.join()
    answers.close()


def _how_it_ended(process: SpawnProcess) -> str:
    process.join(GRACE)
    code = process.exitcode
    if code is None:
        return "closed its channel"
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
