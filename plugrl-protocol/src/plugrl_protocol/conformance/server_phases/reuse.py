"""Phase reuse: rows of the last feedback stand in for those of an infer (SPEC 10.1)."""

import numpy as np

from plugrl_protocol.conformance.calling.caller import Caller
from plugrl_protocol.conformance.calling.talk import ServerClosedError, Talk
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.messages import Infer

_HELD, _ANSWERED = "10.1 reuse/held", "10.1 reuse/answered"


def reuse(caller: Caller) -> None:
    """Reuse some rows, then all; then rows that the server does not hold, which is a resync."""
    talk = caller.call("reusing")
    talk.exchange([0, 1])
    for flags in ([True, False], [False, True], [True, True]):
        try:
            talk.ask(_reusing(talk, flags))
        except ServerClosedError as closed:
            detail = f"infer.reuse {flags}: expected an action, the server closed with {closed.close}"
            raise ViolationError(_ANSWERED, detail) from None
        talk.tell(talk.script.feedback([0, 1]))
        caller.report.passed(_ANSWERED)
    _refuse(caller, "a reuse without any feedback", [])
    _refuse(caller, "a reuse after a done feedback", [True, False])


def _reusing(talk: Talk, flags: list[bool]) -> Infer:
    sent = [env for env, reused in enumerate(flags) if not reused]
    return talk.script.infer(range(len(flags)), observation=talk.script.observation(sent), reuse=np.array(flags))


def _refuse(caller: Caller, why: str, done: list[bool]) -> None:
    talk = caller.call("reusing too much")
    if done:
        talk.exchange([0, 1], done)
    talk.send(_reusing(talk, [True, False]))
    talk.expect_resync(why, _HELD)
    caller.report.passed(_HELD)
