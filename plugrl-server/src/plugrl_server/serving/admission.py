"""A connection's first infer: it is answered once the run has a policy, and the client fits it (SPEC 10.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from plugrl_protocol.messages import Infer

from plugrl_server.assembly import CannotServe
from plugrl_server.serving.connection.session import Session
from plugrl_server.serving.interface import TrainerSource
from plugrl_server.serving.worker import Outcome, Runtime, attempt
from plugrl_server.training.trainer import Trainer

LANE = "learn"
"""Building happens in the thread that will learn."""


class Admission:
    """Builds the trainer on the first declaration, and compares later clients with it.

    Args:
        runtime: For building in a worker thread.
        source: Builds and compares.
        admit: Takes a client that fits, with its first infer.
        built: Told that building has ended, one way or the other.
        fail: Takes an error that ends the run.

    Attributes:
        trainer: The run's trainer, once it is built.
        building: Whether the trainer is being built.
    """

    def __init__(
        self,
        runtime: Runtime,
        source: TrainerSource,
        admit: Callable[[Session, Infer], None],
        built: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self.trainer = source.trainer
        self.building = False
        self._runtime = runtime
        self._source = source
        self._admit = admit
        self._tell_built = built
        self._fail = fail
        self._waiting: deque[tuple[Session, Infer]] = deque()

    def introduce(self, session: Session, infer: Infer) -> None:
        """Take a first infer; while the trainer is being built it waits."""
        self._waiting.append((session, infer))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self.building:
            session, infer = self._waiting.popleft()
            if session.is_open:
                self._decide(session, infer)

    def _decide(self, session: Session, infer: Infer) -> None:
        if self.trainer is None:
            self.building = True
            self._runtime.work(
                LANE,
                lambda: self._source.build(infer.spaces, infer.observation),
                lambda outcome: self._built(session, infer, outcome),
            )
            return
        outcome = attempt(lambda: self._source.disagreement(infer.spaces, infer.observation))
        if outcome.error is not None:
            self._fail(outcome.error)
        elif outcome.value is not None:
            session.reject(outcome.value)
        else:
            self._admit(session, infer)

    def _built(self, session: Session, infer: Infer, outcome: Outcome[Trainer]) -> None:
        self.building = False
        if isinstance(outcome.error, CannotServe):
            session.reject(str(outcome.error))
        elif outcome.error is not None:
            self._fail(outcome.error)
        else:
            self.trainer = outcome.value
            self._waiting.appendleft((session, infer))  # it is compared like all others
        self._go_on()
        self._tell_built()
