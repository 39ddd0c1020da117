"""What every scenario needs: the listening socket, the client's process, the way in and the way out."""

import time
from collections.abc import Callable

from plugrl_protocol.closing import Close
from plugrl_protocol.conformance.client_scenarios.options import ClientOptions
from plugrl_protocol.conformance.client_scenarios.session import Session
from plugrl_protocol.conformance.peer.listener import Guest, Listener
from plugrl_protocol.conformance.peer.shell_command import ShellCommand, say_status
from plugrl_protocol.conformance.peer.trace import Trace
from plugrl_protocol.conformance.probe_tracker import ProbeTracker
from plugrl_protocol.conformance.report import Report, ViolationError
from plugrl_protocol.errors import RemoteProtocolError

_LINGER_SECONDS = 2.0  # for a client that is no process of ours, to see whether it comes back
_PROGRESS, _EXIT = "4.2 exchange/progress", "7.1 closing/exit-status"


class Stage:
    """Where one scenario is played.

    Args:
        options: What to do.
        report: Where to count and note.
        listener: Where the client comes.

    Attributes:
        options: What to do.
        report: Where to count and note.
        met: Whether a client has come.
    """

    def __init__(self, options: ClientOptions, report: Report, listener: Listener) -> None:
        self.options = options
        self.report = report
        self.met = False
        self._listener = listener
        self._trace = Trace()
        self._guests: list[Guest] = []
        self._process: ShellCommand | None = None
        self._counts_status = True

    def play(self, name: str, scenario: Callable[["Stage"], None]) -> None:
        """Start the client if it is ours, run a scenario to its end or first violation, and end the client."""
        self.report.begin(name)
        if self.options.command is None:
            self._play(scenario)
            return
        with ShellCommand(self.options.command, self._listener.host, self._listener.port) as self._process:
            self._play(scenario)

    def _play(self, scenario: Callable[["Stage"], None]) -> None:
        try:
            scenario(self)
            self._judge_status()
        except (ViolationError, RemoteProtocolError) as broken:
            self._drop_guests()  # so that a client that says goodbye need not wait for our answer
            if self._process is not None:
                self._process.end()
            self.report.violation(broken.clause, broken.detail, [*self._last_frames(), *self._output()])
        finally:
            self._drop_guests()

    def _drop_guests(self) -> None:
        for guest in self._guests:
            guest.endpoint.drop()

    def welcome(self, earlier: frozenset[int] | None = None) -> Session:
        """Wait for the client to connect.

        Args:
            earlier: The envs of the connection before, if that was closed for a resync.

        Raises:
            ViolationError: It did not, or not as SPEC 1 says.
        """
        guest = self._await_guest(earlier is not None)
        if guest.fault:
            raise ViolationError("1 layers/websocket", f"handshake: {guest.fault}")
        if "permessage-deflate" in guest.extensions:
            detail = f"handshake: expected no offer of compression, got Sec-WebSocket-Extensions: {guest.extensions}"
            raise ViolationError("1.1 framing/compression", detail)
        self.report.passed("1.1 framing/compression")
        options = self.options
        return Session(guest.endpoint, self.report, features=options.features, timeout=options.timeout, earlier=earlier)

    def tracker(self) -> ProbeTracker:
        """A tracker of the probe environment, for one connection."""
        options = self.options
        return ProbeTracker(self.report.passed, options.horizon, options.action_dim, options.action_dtype)

    def end(self, session: Session, close: Close, clause: str) -> None:
        """Close the connection for good; the client must take it as the end.

        Args:
            session: The connection.
            close: What to close with.
            clause: What a client breaks that comes back.

        Raises:
            ViolationError: It does not close, or comes back.
        """
        for guest in self._waiting_guests():  # a client of several connections: they end too
            guest.endpoint.close(close)
        session.endpoint.close(close)
        closed = session.endpoint.finish(self.options.timeout)
        session.endpoint.drop()
        if closed is None:
            raise ViolationError(clause, f"no answer to our close frame within {self.options.timeout:g} s")
        self.watch_the_end(clause, f"the {close}")
        self.report.passed(clause)

    def watch_the_end(self, clause: str, what: str) -> None:
        """Wait until the client's process has ended, or a while if it is not ours; it must not come back.

        Raises:
            ViolationError: It comes back, or its process goes on.
        """
        until = time.monotonic() + (_LINGER_SECONDS if self._process is None else self.options.timeout)
        while time.monotonic() < until:
            ended = self._process is not None and self._process.ended
            guest = self._look()
            if guest is not None:
                raise ViolationError(clause, f"the client connected again after {what}")
            if ended:
                return
        if self._process is not None:
            broken = _EXIT if self._counts_status else clause
            raise ViolationError(broken, f"the client still runs {self.options.timeout:g} s after {what}")

    def ignore_status(self) -> None:
        """In this scenario an exit status other than 0 is right."""
        self._counts_status = False

    def wait_for_exit(self) -> None:
        """Wait for the client's process, if it is ours.

        Raises:
            ViolationError: It goes on.
        """
        if self._process is not None and self._process.wait(self.options.timeout) is None:
            raise ViolationError(_EXIT, f"the client still runs {self.options.timeout:g} s after it has closed")

    def exit_status(self) -> int | None:
        """Of the client's process; None: it is not ours, or runs."""
        return None if self._process is None else self._process.poll()

    def _await_guest(self, again: bool) -> Guest:
        what, clause = ("connected again", "7.2 closing/reconnect") if again else ("connected", _PROGRESS)
        until = time.monotonic() + self.options.timeout
        while time.monotonic() < until:
            ended = self._process is not None and self._process.ended
            guest = self._look()
            if guest is not None:
                self.met = True
                return guest
            if ended and self._process is not None:
                status = say_status(self._process.poll() or 0)
                raise ViolationError(clause, f"the client ended with {status} before it {what}")
        raise ViolationError(clause, f"no client has {what} within {self.options.timeout:g} s")

    def _waiting_guests(self) -> list[Guest]:
        guests: list[Guest] = []
        while (guest := self._look()) is not None:
            guests.append(guest)
        return guests

    def _look(self) -> Guest | None:
        guest = self._listener.look(self._trace)
        if guest is not None:
            self._guests.append(guest)
        return guest

    def _judge_status(self) -> None:
        if self._process is None or not self._counts_status:
            return
        status = self._process.poll()
        if status is None:
            return
        if status != 0:
            raise ViolationError(_EXIT, f"expected the client to exit with 0, got {say_status(status)}")
        self.report.passed(_EXIT)

    def _last_frames(self) -> list[str]:
        lines = [f"  {line}" for line in self._trace.lines()]
        return ["the last frames, newest last:", *lines] if lines else []

    def _output(self) -> list[str]:
        if self._process is None:
            return []
        lines = self._process.output() or ["(nothing)"]
        return [f"what `{self._process.command}` printed:", *(f"  {line}" for line in lines)]
