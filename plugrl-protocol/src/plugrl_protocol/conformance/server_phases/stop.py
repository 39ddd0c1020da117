"""Phase stop: the run ends with 1001 plugrl-server-stop, for every client (SPEC 7.1)."""

from plugrl_protocol.closing import STOP
from plugrl_protocol.conformance.calling.caller import Caller
from plugrl_protocol.conformance.calling.talk import RunOverError, ServerClosedError
from plugrl_protocol.conformance.report import ViolationError

_CLAUSE = "7.1 closing/stop"
_ENVS = range(8)


def stop(caller: Caller) -> None:
    """Exchange until the server ends its run, beside a client that only waits.

    Raises:
        RunOverError: It has, in the right way.
        ViolationError: It has not, or in another way.
    """
    talk, idle = caller.call("main"), caller.call("idle")
    most = caller.options.max_exchanges
    try:
        for number in range(most):
            talk.exchange(_ENVS, [env == number % 8 for env in _ENVS])
    except ServerClosedError as closed:
        raise ViolationError(
            _CLAUSE, f"expected the run to end with {STOP}, the server closed with {closed.close}"
        ) from None
    except RunOverError:
        idle.expect_close(STOP, "the run is over for another client", _CLAUSE)
        caller.report.passed(_CLAUSE)
        raise
    raise ViolationError(_CLAUSE, f"expected the run to end with {STOP} within {most} exchanges")
