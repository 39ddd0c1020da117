"""How Ctrl-C and SIGTERM end a blocking client: at once while it waits, at the next step while it works."""

import contextlib
import signal
import types
from collections.abc import Iterator


class Interrupted(Exception):  # noqa: N818 - the user's wish, not an error
    """The user asked the client to end while it was waiting."""


class Interrupts:
    """Remembers that the user asked the client to end.

    A signal that arrives inside `waiting()` raises `Interrupted` there; one that arrives elsewhere, for example in an
    env's step or half way through a frame, only sets `requested`, which the rollout looks at between steps. A second
    SIGINT or SIGTERM ends the process at once.

    Args:
        above: what the main thread handles signals with, for the waits of another thread. There a signal interrupts
            nothing and is found before the next wait: such waits must be short.
        patient: a second signal does nothing. For a process that another one looks after, and ends where need be.

    Attributes:
        requested: whether the client should end.
        stalled: whether half a frame waits until the server takes the rest, which no signal interrupts.
    """

    def __init__(self, above: "Interrupts | None" = None, *, patient: bool = False) -> None:
        self._patient = patient
        self._below: list[Interrupts] = []
        self._waiting = False
        self._wait = _Waiting(self)
        self.requested = False
        self.stalled = False
        if above is not None:
            above._below.append(self)  # first: a signal may arrive here
            if above.requested:
                self.requested = True

    def request(self) -> None:
        """The client should end, with everything below it."""
        self.requested = True
        for interrupts in self._below:
            interrupts.request()

    @property
    def is_waiting(self) -> bool:
        """Whether the client does nothing but wait at this moment; any thread may ask."""
        return self._waiting or self.stalled

    @contextlib.contextmanager
    def handling(self, *signals: signal.Signals) -> Iterator["Interrupts"]:
        """Take signals over for the duration (SIGINT and SIGTERM unless others are named); main thread only."""
        taken = signals or (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._handle) for number in taken}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def waiting(self) -> "_Waiting":
        """A context in which the client does nothing but wait.

        Raises:
            Interrupted: a signal arrived before or during the wait.
        """
        return self._wait

    def _handle(self, number: int, frame: types.FrameType | None) -> None:
        del frame
        if self.requested:
            if self._patient:
                return
            raise SystemExit(128 + number)
        self.request()
        if self._waiting:
            raise Interrupted


class _Waiting:
    """A plain class: a generator's context manager would cost a microsecond around each receive."""

    __slots__ = ("_interrupts",)

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    def __enter__(self) -> None:
        interrupts = self._interrupts
        interrupts._waiting = True
        if interrupts.requested:
            interrupts._waiting = False
            raise Interrupted

    def __exit__(self, *exc_info: object) -> None:
        self._interrupts._waiting = False
