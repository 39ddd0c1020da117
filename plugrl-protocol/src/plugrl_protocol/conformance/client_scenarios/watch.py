"""Watch mode: one connection, and what its messages look like."""

from plugrl_protocol.closing import DONE, STOP, Close
from plugrl_protocol.conformance.client_scenarios.actions import plain_actions, space_actions
from plugrl_protocol.conformance.client_scenarios.session import LeftError, Session
from plugrl_protocol.conformance.client_scenarios.stage import Stage
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.connection import DECLARE

_NO_STATUS, _GOING_AWAY, _BROKEN = 1005, 1001, 1006


def watch(stage: Stage) -> None:
    """Give actions for as many exchanges as were asked for, or until the client leaves; then end the run."""
    options = stage.options
    session = stage.welcome()
    data = {"protocol_version": 1, "server": "plugrl-conformance", "action_horizon": options.horizon}
    if DECLARE not in options.features:
        data["action_dim"] = options.action_dim
    session.greet(data | {"features": sorted(options.features)})
    try:
        for _ in range(options.steps):
            _exchange(stage, session)
    except LeftError as left:
        _judge_leaving(stage, session, left.close)
        return
    session.judge_liveness()
    stage.end(session, STOP, "7.1 closing/stop")


def _exchange(stage: Stage, session: Session) -> None:
    options = stage.options
    infer = session.infer()
    rows = len(infer.env_indices)
    if session.space is None:
        action = plain_actions(options.horizon, rows, options.action_dim, options.action_dtype)
    else:
        action = space_actions(options.horizon, rows, session.space)
    session.answer(infer, action)
    session.feedback()


def _judge_leaving(stage: Stage, session: Session, close: Close) -> None:
    """A client may leave when it has what it wants (SPEC 7.5)."""
    session.endpoint.drop()
    if not session.exchanges:
        raise ViolationError("4.2 exchange/progress", f"the client closed with {close} before it completed an exchange")
    if close.code == DONE.code:
        stage.report.passed("7.5 closing/done")
        session.judge_liveness()
    elif close.code in (_NO_STATUS, _GOING_AWAY, _BROKEN):
        stage.report.note("7.5 closing/done", f"the client left with {close}; a finished client closes with 1000")
    else:
        raise ViolationError(
            "4.2 exchange/progress", f"the client closed with {close} after {session.exchanges} exchanges"
        )
    stage.wait_for_exit()
