"""Phase errors: every malformed message closes its own connection for a resync, and touches nobody else."""

from plugrl_protocol.closing import RESYNC, STOP
from plugrl_protocol.conformance.calling.caller import Caller
from plugrl_protocol.conformance.calling.talk import RunOverError, ServerClosedError, Talk
from plugrl_protocol.conformance.peer.dialing import DialError
from plugrl_protocol.conformance.peer.endpoint import Closed
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.conformance.server_phases.malformed import Malformed, malformed, wider

_ENVS = [0, 1]
_ISOLATION = "7.2 closing/isolation"


def errors(caller: Caller) -> None:
    """Send each malformed message on a connection of its own, beside an honest client that goes on."""
    honest = caller.call("honest")
    infer, feedback = honest.script.infer(_ENVS).to_wire(), honest.script.feedback(_ENVS).to_wire()
    before = "an honest client"
    for fault in malformed(infer, feedback):
        bad = _call_after(caller, before)
        _send(bad, fault, before)
        bad.expect_resync(fault.name, fault.clause, fault.wrong_close)
        caller.report.passed(fault.clause, fault.wrong_close)
        _go_on(honest, fault.name)
        caller.report.passed(_ISOLATION)
        before = fault.name
    _send_wider(_call_after(caller, before))
    _go_on(_call_after(caller, "an infer with wider states"), "an infer with wider states")


def _call_after(caller: Caller, before: str) -> Talk:
    try:
        return caller.call("faulty")
    except DialError as error:
        raise ViolationError(_ISOLATION, f"after {before}: expected the next connection to work: {error}") from None


def _send(bad: Talk, fault: Malformed, before: str) -> None:
    """A whole exchange, which shows that this next connection works; then the fault, in its turn."""
    _exchange(bad, f"after {before}: expected the next connection to work")
    if fault.turn == "feedback":
        bad.ask(bad.script.infer(_ENVS))
    if isinstance(fault.frame, str):
        bad.endpoint.send_text(fault.frame)
    else:
        bad.endpoint.send(fault.frame)


def _go_on(honest: Talk, what: str) -> None:
    _exchange(honest, f"{what} on another connection: expected the honest client to go on")


def _exchange(talk: Talk, expected: str) -> None:
    """A whole exchange; if the server closes or falls silent, somebody else's fault has reached this connection."""
    try:
        talk.exchange(_ENVS)
    except ServerClosedError as closed:
        raise ViolationError(_ISOLATION, f"{expected}, the server closed with {closed.close}") from None
    except ViolationError as broken:
        if broken.clause != "4.2 exchange/progress":
            raise
        raise ViolationError(_ISOLATION, f"{expected}: {broken.detail}") from None


def _send_wider(bad: Talk) -> None:
    """States of another width: a resync, or an action from a server that does not read them."""
    _exchange(bad, "after all malformed messages: expected the next connection to work")
    bad.endpoint.send(wider(bad.script.infer(_ENVS).to_wire()))
    received = bad.endpoint.receive(bad.timeout)
    if isinstance(received, Closed) and received.close == STOP:
        raise RunOverError
    if received is None or (isinstance(received, Closed) and received.close != RESYNC):
        what = "nothing" if received is None else received.close
        raise ViolationError("7.2 closing/resync", f"an infer with wider states: expected {RESYNC}, got {what}")
