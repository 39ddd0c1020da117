"""What the algorithm does next: record, stop, save, learn or infer.

Nothing is polled. A message, a finished call, a timer or a connection that left wakes the scheduler, and a *turn* does
all that can be done. The algorithm does one thing at a time; whatever may take long happens in a worker thread, so the
event loop goes on with handshakes, pings, `/healthz` and parsing (lesson 7).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

import numpy as np
from plugrl_protocol.closing import INTERNAL_ERROR
from plugrl_protocol.messages import Infer

from plugrl_server.learning import trees
from plugrl_server.serving.admission import Admission
from plugrl_server.serving.batcher import Batch, Batcher, Request
from plugrl_server.serving.connection.observations import ObservationReader, Reading
from plugrl_server.serving.connection.session import Report, Session
from plugrl_server.serving.connection.transitions import Transitions
from plugrl_server.serving.intake import Continuous, Intake, Rounds
from plugrl_server.serving.interface import Ending, RunEvents, ServingOptions, TrainerSource
from plugrl_server.serving.worker import Outcome, Pace, Runtime, attempt
from plugrl_server.training.accounting import Accounting, Discard
from plugrl_server.training.trainer import AlgorithmError, Trainer, UnsoundPolicyError

logger = logging.getLogger(__name__)

ASK_INTERVAL = 1.0
"""Longest time between two questions to `should_save` and `should_stop`, s."""


class Scheduler:
    """Drives one run's algorithm for all its sessions.

    Args:
        runtime: Time, timers and worker threads.
        source: Has or builds the trainer.
        options: How to serve.
        events: Told what happens.
        accounting: Counts feedback rows.
        changed: Told that the run ends, and then of every call in flight and every connection that ends.

    Attributes:
        ending: Why and how the run ends, once it does.
        sessions: The connections that have their metadata and have not ended.
        exchanges: Requests answered.
    """

    def __init__(
        self,
        runtime: Runtime,
        source: TrainerSource,
        options: ServingOptions,
        events: RunEvents,
        accounting: Accounting,
        changed: Callable[[], None],
    ) -> None:
        self.ending: Ending | None = None
        self.sessions: set[Session] = set()
        self.exchanges = 0
        self._runtime = runtime
        self._options = options
        self._events = events
        self._accounting = accounting
        self._changed = changed
        self._admission = Admission(runtime, source, self._admit, self._go_on, self.fail)
        self._reader: ObservationReader | None = None
        self._taking_part: set[Session] = set()
        self._intake: Intake = (
            Continuous(Batcher(options.mini_infer_batch_size, options.infer_wait_ms / 1000))
            if options.deterministic is None
            else Rounds(options.deterministic)
        )
        self._pace = Pace()
        self._calling = False
        self._learning = False
        self._learned_last = self._saved_last = False
        self._ask_due = True
        self._turn_due = False
        self._in_turn = False
        self._alarm_at = float("inf")

    # What the server asks ----------------------------------------------------------------------------------------

    @property
    def readiness(self) -> tuple[bool, str]:
        """Whether a client would be served, and the state in a word (SPEC 1.3)."""
        if self.ending is not None:
            return False, "stopping"
        if self._admission.building:
            return False, "building"
        return True, "waiting-for-client" if self.trainer is None else "ready"

    @property
    def trainer(self) -> Trainer | None:
        """The run's trainer, once it is built."""
        return self._admission.trainer

    @property
    def is_idle(self) -> bool:
        """Whether no call is in flight."""
        return not (self._calling or self._learning or self._admission.building)

    def start(self) -> None:
        """Begin to ask `should_save` and `should_stop` now and then, even if nothing happens."""
        self._runtime.call_at(self._runtime.time() + ASK_INTERVAL, self._ask_again)

    def end(self, ending: Ending) -> None:
        """Start nothing more; calls in flight go on until they end. Feedback in the queue is discarded."""
        if self.ending is not None:
            return
        self.ending = ending
        for report in self._intake.drop():
            report.session.count.discard(Discard.AFTER_CLOSE, len(report.feedback.env_indices))
        self._changed()

    def fail(self, error: Exception) -> None:
        """End the run on an error of the algorithm (or of the program around it); the clients learn no details."""
        logger.debug("the run failed", exc_info=error)
        text = str(error) if isinstance(error, AlgorithmError) else f"{type(error).__name__}: {error}"
        ending = Ending("failed", 1, text, save=not isinstance(error, UnsoundPolicyError), close=INTERNAL_ERROR)
        if self.ending is None:
            self.end(ending)
        elif self.ending.exit_code == 0:
            self.ending = ending

    # What the sessions bring -------------------------------------------------------------------------------------

    def opened(self, session: Session) -> None:
        """A client is connected."""
        self.sessions.add(session)
        self._events.connected(len(self.sessions))
        if self._learning:
            session.suspend()
        if self.ending is not None:
            session.close(self.ending.close)

    def introduced(self, session: Session, infer: Infer) -> None:
        """A client sent its first infer."""
        self._admission.introduce(session, infer)

    def asked(self, session: Session, env_indices: np.ndarray, reading: Reading) -> None:
        """A client wants actions."""
        self._intake.request(Request(session, env_indices, reading.obs, reading.layout, self._runtime.time()))
        self._wake()

    def reported(self, report: Report) -> None:
        """A client reports what became of actions."""
        if self.ending is not None:
            report.session.count.discard(Discard.AFTER_CLOSE, len(report.feedback.env_indices))
            return
        self._intake.report(report)
        self._wake()

    def left(self, session: Session) -> None:
        """A session is being closed: its requests are void, its feedback is not."""
        self._taking_part.discard(session)
        self._intake.leave(session)
        self._wake()

    def gone(self, session: Session, *, handshake: bool) -> None:
        """A connection has ended."""
        self.sessions.discard(session)
        self._accounting.close(session.count, handshake=handshake)
        self._events.disconnected(len(self.sessions))
        if self.ending is not None:
            self._changed()

    def _admit(self, session: Session, infer: Infer) -> None:
        trainer = self._admission.trainer
        if trainer is None:
            return
        if self._reader is None:
            self._reader = ObservationReader(trainer.policy)
        declared = None if infer.spaces is None else infer.spaces.action
        if self._options.deterministic is not None and not self._number(session, infer):
            return
        self._taking_part.add(session)
        try:
            trainer.algorithm.note_client(session.client)
        except Exception as error:
            self.fail(AlgorithmError.of("note_client", error))
            return
        session.admit(infer, self._reader, declared or getattr(trainer.policy.config, "action_space", None))

    def _number(self, session: Session, infer: Infer) -> bool:
        """Note a client's number in a deterministic run; reject one that has none or a taken one."""
        number = None if infer.spaces is None else infer.spaces.client
        if number is None:
            session.reject("--deterministic needs a client number, declared as spaces.client")
        elif any(other.client_number == number for other in self._taking_part):
            session.reject(f"client number {number} is taken; --deterministic needs different ones")
        else:
            session.client_number = number
        return session.is_open

    # Turns -------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Take a turn: at once for a lone client, which nobody can share a batch with; else when all have been read."""
        if self._turn_due or self._in_turn:
            return
        if len(self.sessions) == 1:
            self._turn()
        else:
            self._turn_due = True
            self._runtime.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        if self._in_turn:
            return
        self._in_turn = True
        try:
            while self._step():
                pass
        except Exception as error:
            self.fail(error)
        self._in_turn = False
        self._set_alarm()

    def _step(self) -> bool:
        """Do one thing; False when there is nothing to do before something happens."""
        trainer = self.trainer
        if self.ending is not None or self._calling or trainer is None:
            return False
        if self._ask_due:
            return self._ask(trainer)
        if self._learning and not trainer.concurrent:
            return False
        report = self._intake.next_report(self._taking_part)
        if report is not None:
            return self._record(trainer, report)
        batch = self._intake.next_batch(self._runtime.time(), self._taking_part)
        if batch is not None:
            return self._infer(trainer, batch)
        return False

    def _ask(self, trainer: Trainer) -> bool:
        """Ask the algorithm whether to stop, save or learn, and do it; what it has collected it learns from first."""
        self._ask_due = False
        try:
            if trainer.should_stop():
                if trainer.on_policy and not self._learned_last and not self._learning and trainer.should_learn():
                    return self._learn(trainer)
                self.end(Ending("finished"))
                return False
            if self._learning:
                return True
            if not self._saved_last and trainer.should_save():
                return self._save(trainer)
            return self._learn(trainer) if trainer.should_learn() else True
        except AlgorithmError as error:
            self.fail(error)
            return False

    def _ask_again(self) -> None:
        if self.ending is None:
            self._tell_symptoms()
            self._ask_due = True
            self._turn()
            self.start()

    def _set_alarm(self) -> None:
        """Be woken when a request has waited long enough for others."""
        due = self._intake.deadline()
        if due is None or due >= self._alarm_at or self.ending is not None or not self.is_idle:
            return
        self._alarm_at = due
        self._runtime.call_at(due, self._ring)

    def _ring(self) -> None:
        self._alarm_at = float("inf")
        self._turn()

    # Calls -------------------------------------------------------------------------------------------------------

    def _record(self, trainer: Trainer, report: Report) -> bool:
        transitions = report.session.join(report)
        return self._call(
            ("feedback", len(report.feedback.env_indices)),
            partial(transitions.record, trainer),
            partial(self._recorded, trainer, report.session, transitions),
        )

    def _recorded(
        self, trainer: Trainer, session: Session, transitions: Transitions, discarded: Mapping[Discard, int]
    ) -> None:
        session.settle(transitions)
        session.count.settle(len(transitions.feedback.env_indices), discarded)
        self._ask_due, self._learned_last, self._saved_last = True, False, False
        self._events.stepped(trainer.global_step)
        for global_step, metrics in trainer.drain_logs():
            self._events.logged(global_step, metrics)

    def _infer(self, trainer: Trainer, batch: Batch) -> bool:
        job = partial(trainer.infer, batch.obs, batch.rows)
        return self._call((batch.requests[0].layout, batch.rows), job, partial(self._inferred, batch))

    def _inferred(self, batch: Batch, inference: Any) -> None:
        alone = len(batch.requests) == 1
        states = (inference.runtime_state, inference.train_state)
        try:
            for request, rows in batch.parts():
                action = inference.action if alone else inference.action[rows]
                part = states if alone else trees.take(states, rows)
                request.session.answer(request.env_indices, request.obs, action, part, inference.version)
        except Exception as error:
            raise AlgorithmError.of("infer", error) from error
        self.exchanges += len(batch.requests)

    def _call(self, kind: Hashable, job: Callable[[], Any], done: Callable[[Any], None]) -> bool:
        """Make a call inline, if its kind is known to be quick; else in the worker thread. True when it is done."""
        if not self._pace.is_quick(kind):
            self._calling = True
            self._work("act", job, partial(self._take_back, kind, done))
            return False
        outcome = attempt(lambda: done(job()))
        if outcome.error is not None:
            self.fail(outcome.error)
        self._pace.note(kind, outcome.seconds)
        return True

    def _take_back(self, kind: Hashable, done: Callable[[Any], None], outcome: Outcome[Any]) -> None:
        self._calling = False
        self._pace.note(kind, outcome.seconds)
        if outcome.error is not None:
            raise outcome.error
        done(outcome.value)

    def _tell_symptoms(self) -> None:
        for text in self.trainer.symptoms.drain() if self.trainer is not None else ():
            self._events.warned(text)

    def _save(self, trainer: Trainer) -> bool:
        self._calling = self._saved_last = True
        self._work("save", trainer.save, self._saved)
        return False

    def _saved(self, outcome: Outcome[Any]) -> None:
        self._calling = False
        self._ask_due = True
        if isinstance(outcome.error, AlgorithmError):
            raise outcome.error
        if outcome.error is not None:  # a full disk, perhaps: the run goes on, and tries again when it saves next
            self._events.warned(f"no checkpoint written: {outcome.error}")
        elif outcome.value is not None:
            self._events.saved(outcome.value)
        self._tell_symptoms()

    def _learn(self, trainer: Trainer) -> bool:
        """Start a learn step; True when the algorithm can go on acting meanwhile."""
        self._learning = self._learned_last = True
        for session in self.sessions:
            session.suspend()
        self._events.learning(True)
        self._work("learn", trainer.learn, self._learned)
        return trainer.concurrent

    def _learned(self, outcome: Outcome[tuple[int, dict[str, float]]]) -> None:
        self._learning = self._saved_last = False
        for session in self.sessions:
            session.resume()
        self._ask_due = True
        self._events.learning(False)
        if outcome.error is not None:
            raise outcome.error
        if outcome.value is not None and outcome.value[1]:
            self._events.learned(*outcome.value)
        self._tell_symptoms()

    def _work(self, lane: str, job: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None:
        """Do a job in a worker thread, then call `done`, and take a turn."""

        def back(outcome: Outcome[Any]) -> None:
            try:
                done(outcome)
            except Exception as error:
                self.fail(error)
            self._go_on()

        self._runtime.work(lane, job, back)

    def _go_on(self) -> None:
        """A call in a worker thread has ended."""
        self._turn()
        if self.ending is not None:
            self._changed()
