"""The process that learns: it obeys orders, one after the other, and shows its weights now and then.

| order | answer |
|---|---|
| `("add", columns)`: store frames | |
| `("update", n)`: take n updates | `("report", (updates, metrics))` with each version of the weights |
| `("publish", None)`: show the weights as they are now | `("published", None)` |
| `("threads", n)`: use n torch threads | |
| `("load", state)`: become this state | `("loaded", None)`, or `("refused", text)` |
| `("state", None)`: tell your whole state | `("state", state)` |

An error is answered by `("failed", text)`. The process ends when the server's end of the channel is closed, at once.
"""

import contextlib
import os
import queue
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from plugrl_server.algorithm.concurrent import channel
from plugrl_server.algorithm.concurrent.board import HANDLED, UPDATES, Board
from plugrl_server.algorithm.concurrent.learner import BuildLearner, Learner, load_whole_state, whole_state

PUBLISH_INTERVAL = 0.25
"""Least time between two versions of the weights, s."""


def run(build: BuildLearner, board: Board, orders: Connection, answers: Connection) -> None:
    """Be the learner process: what `multiprocessing` starts."""
    try:
        torch.set_num_threads(1)
        LearnerProcess(build(), board, orders, answers).serve()
    except Exception as error:
        with contextlib.suppress(OSError):
            channel.send(answers, ("failed", _text(error)))
        raise SystemExit(1) from None


class LearnerProcess:
    """Obeys the orders for one learner.

    Args:
        learner: Built, and about to be loaded.
        board: Shows its weights and counters.
        orders: Where orders come from.
        answers: Where answers go.
    """

    def __init__(self, learner: Learner, board: Board, orders: Connection, answers: Connection) -> None:
        self._learner = learner
        self._board = board
        self._orders = orders
        self._answers = answers
        self._inbox: queue.SimpleQueue[tuple[Any, int]] = queue.SimpleQueue()
        self._published_at = float("-inf")
        self._unpublished = 0

    def serve(self) -> None:
        """Obey, for ever."""
        threading.Thread(target=self._read, name="orders", daemon=True).start()
        while True:
            try:
                (order, what), size = self._inbox.get(timeout=self._until_publication())
            except queue.Empty:
                self._publish()
                continue
            self._obey(order, what)
            self._board.counters[HANDLED] += size

    def _read(self) -> None:
        """Take orders out of the channel as they come, so that the server never waits to give one."""
        try:
            while True:
                self._inbox.put(channel.receive(self._orders))
        except (EOFError, OSError):
            os._exit(0)  # the server has ended, or wants no more: whatever is being computed is of no use

    def _obey(self, order: str, what: Any) -> None:
        match order:
            case "add":
                self._learner.add(**what)
            case "update":
                self._update(what)
            case "publish":
                if self._unpublished:
                    self._publish()
                channel.send(self._answers, ("published", None))
            case "threads":
                torch.set_num_threads(what)
            case "load":
                self._load(what)
            case "state":
                channel.send(self._answers, ("state", whole_state(self._learner)))

    def _update(self, n: int) -> None:
        for _ in range(n):
            self._learner.update(1)
            self._board.counters[UPDATES] = self._learner.updates
            self._unpublished += 1
            if self._until_publication() == 0:
                self._publish()

    def _load(self, state: Any) -> None:
        try:
            load_whole_state(self._learner, state)
        except (RuntimeError, ValueError) as error:
            channel.send(self._answers, ("refused", str(error)))
            return
        self._unpublished = 0
        self._board.counters[UPDATES] = self._learner.updates
        channel.send(self._answers, ("loaded", None))

    def _until_publication(self) -> float | None:
        """Return the seconds until weights are due, None when there is nothing new."""
        if not self._unpublished:
            return None
        return max(0.0, self._published_at + PUBLISH_INTERVAL - time.monotonic())

    def _publish(self) -> None:
        channel.send(self._answers, ("report", (self._unpublished, self._learner.metrics())))
        self._board.publish(self._learner.policy.state_dict())
        self._published_at = time.monotonic()
        self._unpublished = 0


def _text(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})"
