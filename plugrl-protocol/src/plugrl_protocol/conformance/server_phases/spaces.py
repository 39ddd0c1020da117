"""Phase spaces: a declaration that fits the run, and one that does not (SPEC 10.2)."""

import numpy as np

from plugrl_protocol.closing import reject
from plugrl_protocol.codec.fields import describe
from plugrl_protocol.conformance.calling.caller import Caller
from plugrl_protocol.conformance.calling.talk import ServerClosedError, Talk, box
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.spaces import ActionSpace, BoxSpace, Declaration, DiscreteSpace, MultiDiscreteSpace

_AGREE, _DISAGREE = "10.2 spaces/agree", "10.2 spaces/disagree"


def spaces(caller: Caller) -> None:
    """Declare the run's own action space on two connections, then another one."""
    for name in ("declaring", "declaring too"):
        talk = caller.call(name)
        _agree(talk, talk.space)
        caller.report.passed(_AGREE)
    _disagree(caller)


def _agree(talk: Talk, space: ActionSpace) -> None:
    declaration = Declaration(space, env="conformance", num_envs=2, max_episode_steps=100)
    try:
        action = talk.ask(talk.script.infer([0, 1], spaces=declaration)).action
    except ServerClosedError as closed:
        raise ViolationError(_AGREE, f"{space} declared: expected an action, closed with {closed.close}") from None
    talk.tell(talk.script.feedback([0, 1]))
    if action.shape[2:] != space.shape or action.dtype != space.dtype:
        detail = f"{space} declared: expected {space.dtype.name} actions of shape {list(space.shape)}"
        raise ViolationError(_AGREE, f"{detail}, got {describe(action, exact=True)}")
    low, high = _bounds(space)
    if not bool(np.all((action >= low) & (action <= high))):
        raise ViolationError(_AGREE, f"{space} declared: expected actions inside it")


def _bounds(space: ActionSpace) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(space, BoxSpace):
        return space.low, space.high
    if isinstance(space, DiscreteSpace):
        return np.asarray(space.start), np.asarray(space.start + space.n - 1)
    if isinstance(space, MultiDiscreteSpace):
        return np.zeros_like(space.nvec), space.nvec - 1
    return np.asarray(0), np.asarray(1)


def _disagree(caller: Caller) -> None:
    talk = caller.call("disagreeing")
    space = talk.space
    width = space.shape[0] if isinstance(space, BoxSpace) and len(space.shape) == 1 else 0
    other = box(width + 1)
    talk.send(talk.script.infer([0, 1], spaces=Declaration(other)))
    close = talk.expect_close(reject(""), f"{other} declared to a run with {space}", _DISAGREE)
    if width and not all(str(number) in close.reason for number in (width, width + 1)):
        raise ViolationError(_DISAGREE, f"expected a reason that names both sides, {width} and {width + 1}: {close}")
    caller.report.passed(_DISAGREE)
