"""Phase scoping: env indices, and what the server remembers of them, belong to one connection (SPEC 4.4, 7.6)."""

from plugrl_protocol.conformance.calling.caller import Caller
from plugrl_protocol.conformance.calling.talk import ServerClosedError
from plugrl_protocol.conformance.report import ViolationError


def scoping(caller: Caller) -> None:
    """Use one index on two connections at once; then send feedback that the server knows nothing of."""
    _share_an_index(caller)
    _send_unheld(caller)


def _share_an_index(caller: Caller) -> None:
    first, second = caller.call("first"), caller.call("second")
    try:
        for _ in range(2):
            for talk in (first, second):
                talk.ask(talk.script.infer([5]))
            for talk in (second, first):
                talk.tell(talk.script.feedback([5]))
    except ServerClosedError as closed:
        detail = f"env 5 on two connections: expected both to go on, the server closed with {closed.close}"
        raise ViolationError("4.4 indices/scope", detail) from None
    caller.report.passed("4.4 indices/scope")


def _send_unheld(caller: Caller) -> None:
    talk = caller.call("stateless")
    try:
        talk.ask(talk.script.infer([1]))
        talk.tell(talk.script.feedback([1, 9]), held=False)
        talk.exchange([1, 9])
    except ServerClosedError as closed:
        detail = (
            f"feedback for env 9, which holds no action: expected the exchange to go on, closed with {closed.close}"
        )
        raise ViolationError("7.6 feedback/no-step-state", detail) from None
    caller.report.passed("7.6 feedback/no-step-state")
