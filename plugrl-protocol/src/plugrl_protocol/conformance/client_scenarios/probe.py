"""The scenarios of --probe: the client runs the probe environment, and the checker drives the connection."""

from typing import Any

from plugrl_protocol.closing import RESYNC, STOP, TOO_BIG, Close, reject
from plugrl_protocol.conformance.client_scenarios.session import LeftError, Session
from plugrl_protocol.conformance.client_scenarios.stage import Stage
from plugrl_protocol.conformance.peer.endpoint import Closed
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.messages import Infer

_LATE_SECONDS = 0.3
_PADDING = bytes(2**20 + 2**18)
_BROKEN = 1006
_STOP, _TEXT, _FINAL, _PROGRESS = (
    "7.1 closing/stop",
    "7.4 closing/text-frame",
    "7.7 closing/final",
    "4.2 exchange/progress",
)


def basic(stage: Stage) -> None:
    """Speak late, send metadata of over 1 MiB with an unknown key, follow the probe, and end with a stop."""
    session = stage.welcome()
    _expect_silence(session)
    session.greet(_metadata(stage) | {"x-conformance-padding": _PADDING})
    infer = _first_infer(stage, session)
    stage.report.passed("1.1 framing/size", "3.1 codec/unknown-keys")
    _run(stage, session, stage.options.steps, infer)
    session.judge_liveness()
    stage.end(session, STOP, _STOP)


def resync(stage: Stage) -> None:
    """Close for a resync halfway, right after an action; the client starts again from nothing."""
    session = stage.welcome()
    session.greet(_metadata(stage))
    _run_until_held(stage, session)
    session.endpoint.close(RESYNC)
    session.endpoint.finish(stage.options.timeout)
    session.endpoint.drop()
    again = stage.welcome(earlier=frozenset(session.envs))
    again.greet(_metadata(stage) | {"protocol_version": 2})  # a client warns and goes on (SPEC 5.1)
    try:
        infer = again.infer()
    except LeftError as left:
        detail = f"expected an infer after metadata of protocol_version 2, the client closed with {left.close}"
        raise ViolationError("5.1 metadata/version", detail) from None
    _run(stage, again, max(1, stage.options.steps - session.exchanges), infer)
    stage.report.passed("5.1 metadata/version")
    again.judge_liveness()
    stage.end(again, STOP, _STOP)


def text(stage: Stage) -> None:
    """Answer the first infer with a text frame: the client closes, and sends nothing more."""
    stage.ignore_status()
    session = stage.welcome()
    session.greet(_metadata(stage))
    _infer(session)
    session.endpoint.send_text("this is no action")
    received = session.endpoint.receive(stage.options.timeout)
    if received is None:
        raise ViolationError(_TEXT, f"expected the client to close, it has not within {stage.options.timeout:g} s")
    if not isinstance(received, Closed):
        raise ViolationError("7.4 closing/silence", "expected nothing after a text frame, the client sent a message")
    session.endpoint.drop()
    stage.watch_the_end(_TEXT, "a text frame, which is final")
    stage.report.passed(_TEXT, "7.4 closing/silence")


def refusal(stage: Stage) -> None:
    """Refuse the first infer with 1008, as a server does that cannot serve the declared spaces (SPEC 10.2)."""
    stage.ignore_status()
    session = stage.welcome()
    session.greet(_metadata(stage))
    _infer(session)
    stage.end(session, reject("action_dim 1, this run has 2"), _FINAL)
    if stage.exit_status() == 0:
        raise ViolationError(_FINAL, "expected the client to exit with another status than 0 after 1008, got 0")


def _metadata(stage: Stage) -> dict[str, Any]:
    options = stage.options
    return {
        "protocol_version": 1,
        "server": "plugrl-conformance",
        "action_horizon": options.horizon,
        "action_dim": options.action_dim,
        "features": sorted(options.features),
    }


def _expect_silence(session: Session) -> None:
    received = session.endpoint.receive(_LATE_SECONDS)
    if isinstance(received, Closed):
        raise ViolationError(_PROGRESS, f"the client closed with {received.close} before it had the metadata")
    if received is not None:
        detail = "expected nothing before the metadata, the client sent a message"
        raise ViolationError("5.1 metadata/wait", detail)


def _first_infer(stage: Stage, session: Session) -> Infer:
    """The infer after the large metadata."""
    try:
        infer = session.infer()
    except LeftError as left:
        detail = f"the client closed with {left.close} on metadata of {len(_PADDING):,} bytes with an unknown key"
        too_big = left.close.code in (TOO_BIG.code, _BROKEN)
        raise ViolationError("1.1 framing/size" if too_big else "3.1 codec/unknown-keys", detail) from None
    stage.report.passed("5.1 metadata/wait")
    return infer


def _infer(session: Session) -> Infer:
    try:
        return session.infer()
    except LeftError as left:
        raise _gone(session, left.close) from None


def _run(stage: Stage, session: Session, steps: int, infer: Infer) -> None:
    """Follow the probe for `steps` exchanges, of which the first begins with `infer`."""
    tracker = stage.tracker()
    try:
        for step in range(steps):
            infer = session.infer() if step else infer
            session.answer(infer, tracker.answer(infer))
            tracker.feedback(session.feedback())
    except LeftError as left:
        raise _gone(session, left.close) from None


def _run_until_held(stage: Stage, session: Session) -> None:
    """Stop after an action, halfway, and if it can be while other envs are in the middle of a chunk."""
    steps, tracker = stage.options.steps, stage.tracker()
    try:
        while True:
            infer = session.infer()
            session.answer(infer, tracker.answer(infer))
            partial = len(infer.env_indices) < len(session.envs)
            if session.exchanges >= steps // 2 and (partial or session.exchanges >= 3 * steps // 4):
                return
            tracker.feedback(session.feedback())
    except LeftError as left:
        raise _gone(session, left.close) from None


def _gone(session: Session, close: Close) -> ViolationError:
    detail = f"the client closed with {close} after {session.exchanges} exchanges; the probe runs until it is stopped"
    return ViolationError(_PROGRESS, detail)
