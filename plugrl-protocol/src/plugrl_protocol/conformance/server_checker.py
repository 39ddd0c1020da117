"""Grades a server: one phase after the other, each to its end or to its first violation (SPEC 8.2)."""

import time
from collections.abc import Callable, Iterator

from plugrl_protocol.conformance.calling.caller import Caller
from plugrl_protocol.conformance.calling.options import ServerOptions
from plugrl_protocol.conformance.calling.talk import RunOverError, ServerClosedError
from plugrl_protocol.conformance.peer.dialing import DialError, connect, get
from plugrl_protocol.conformance.peer.shell_command import ShellCommand, say_status
from plugrl_protocol.conformance.report import Report, ViolationError
from plugrl_protocol.conformance.server_phases.auth import auth
from plugrl_protocol.conformance.server_phases.errors import errors
from plugrl_protocol.conformance.server_phases.exchange import exchange
from plugrl_protocol.conformance.server_phases.reuse import reuse
from plugrl_protocol.conformance.server_phases.scoping import scoping
from plugrl_protocol.conformance.server_phases.spaces import spaces
from plugrl_protocol.conformance.server_phases.stop import stop
from plugrl_protocol.connection import DECLARE, REUSE
from plugrl_protocol.errors import RemoteProtocolError

_UNREADY = 503
_LOOK_SECONDS = 0.05
_EXIT, _NO_METADATA = "7.1 closing/exit-status", "5.1 metadata/sent"

Phase = Callable[[Caller], None]


class UnreachableError(Exception):
    """There is no server to grade, or it ended before it was graded; the text says which."""


def check_server(options: ServerOptions, report: Report) -> None:
    """Run all phases that concern the server of `options`; start and end it if it is given as a command.

    Raises:
        UnreachableError: It could not be graded to the end.
        KeyNeededError: It wants another API key.
    """
    if options.command is None:
        _Checker(options, report, None).run()
        return
    with ShellCommand(options.command, options.host, options.port) as process:
        _Checker(options, report, process).run()


class _Checker:
    def __init__(self, options: ServerOptions, report: Report, process: ShellCommand | None) -> None:
        self._options = options
        self._report = report
        self._process = process
        self._features: frozenset[str] = frozenset()

    def run(self) -> None:
        self._await_server()
        for name, phase in self._phases():
            if not self._run(name, phase):
                return

    def _phases(self) -> Iterator[tuple[str, Phase]]:
        """The phases in order; what the server offers is known after the first."""
        yield "exchange", exchange
        yield "errors", errors
        yield "scoping", scoping
        if REUSE in self._features:
            yield "reuse", reuse
        if DECLARE in self._features:
            yield "spaces", spaces
        if self._options.api_key is not None:
            yield "auth", auth
        if self._options.until_stop:
            yield "stop", stop

    def _run(self, name: str, phase: Phase) -> bool:
        """Run one phase; returns whether there is a next one."""
        caller = Caller(self._options, self._report)
        self._report.begin(name)
        try:
            self._play(caller, phase)
        except RunOverError:
            self._end(name)
            return False
        except (ViolationError, RemoteProtocolError) as broken:
            self._report.violation(broken.clause, broken.detail, self._evidence(caller))
            return broken.clause != _NO_METADATA and self._still_there(caller, name)
        finally:
            self._features |= caller.features
            caller.hang_up()
        return True

    def _play(self, caller: Caller, phase: Phase) -> None:
        try:
            phase(caller)
        except ServerClosedError as closed:
            detail = f"expected the exchange to go on, the server closed with {closed.close}"
            raise ViolationError("4.2 exchange/progress", detail) from None
        except DialError as error:
            raise ViolationError("1 layers/websocket", str(error)) from None

    def _still_there(self, caller: Caller, name: str) -> bool:
        """After a violation, whether there is a server left for the next phase."""
        key = self._options.api_key
        try:
            caller.dial("after the violation", authorization=None if key is None else f"Api-Key {key}").drop()
        except DialError as error:
            self._report.remarks.append(f"nothing was run after phase {name}: {error}")
            return False
        return True

    def _end(self, name: str) -> None:
        """The run is over; that of a process of ours shows in its exit status."""
        if name != "stop":
            raise UnreachableError(f"the run ended in phase {name}, before the server was graded; give it a longer one")
        if self._process is None:
            return
        status = self._process.wait(self._options.timeout)
        if status == 0:
            self._report.passed(_EXIT)
            return
        what = "it still runs" if status is None else f"got {say_status(status)}"
        self._report.violation(_EXIT, f"expected the server to exit with 0 after its stop, {what}", self._output())

    def _await_server(self) -> None:
        """Wait for the port, and until the server says that it is ready (SPEC 1.3)."""
        options = self._options
        until = time.monotonic() + options.timeout
        while True:
            try:
                connect(options.host, options.port, options.timeout).close()
                if get(options.host, options.port, "/readyz", options.timeout) != _UNREADY:
                    return
                error: DialError | str = "it is not ready (503)"
            except DialError as refused:
                error = refused
            if self._process is not None and self._process.ended:
                raise UnreachableError("\n".join(["the server ended before it listened", *self._output()]))
            if time.monotonic() > until or (self._process is None and isinstance(error, DialError)):
                raise UnreachableError("\n".join([f"no server to grade: {error}", *self._output()]))
            time.sleep(_LOOK_SECONDS)

    def _evidence(self, caller: Caller) -> list[str]:
        return ["the last frames, newest last:", *(f"  {line}" for line in caller.trace.lines()), *self._output()]

    def _output(self) -> list[str]:
        if self._process is None:
            return []
        lines = self._process.output() or ["(nothing)"]
        return [f"what `{self._process.command}` printed:", *(f"  {line}" for line in lines)]
