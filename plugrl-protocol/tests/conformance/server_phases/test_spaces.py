"""Phase spaces, against honest and broken servers."""

import numpy as np
import pytest
from plugrl_protocol.closing import RESYNC, reject
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.conformance.server_phases.spaces import spaces
from plugrl_protocol.spaces import DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace


def broken(calling) -> tuple[str, str]:
    with pytest.raises(ViolationError) as raised:
        spaces(calling)
    return raised.value.clause, raised.value.detail


def acting(action: np.ndarray):
    """Two envs' actions [H,2,...] in place of the server's own."""

    def change(kind, wire):
        if kind == "action":
            wire["data"]["action"] = action
        return wire

    return change


def test_an_honest_server_passes(server, caller):
    calling = caller(server())
    spaces(calling)

    assert calling.report.has_passed("10.2 spaces/agree")
    assert calling.report.has_passed("10.2 spaces/disagree")


@pytest.mark.parametrize(
    ("space", "right", "wrong"),
    [
        (DiscreteSpace(3, start=2), [[2, 4]], [[1, 2]]),
        (MultiDiscreteSpace(np.array([2, 3])), [[[0, 2], [1, 0]]], [[[0, 3], [0, 0]]]),
        (MultiBinarySpace(2), [[[0, 1], [1, 1]]], [[[0, 2], [1, 1]]]),
    ],
)
def test_actions_have_to_lie_in_the_space(server, caller, monkeypatch, space, right, wrong):
    for action, passes in ((right, True), (wrong, False)):
        running = server(change=acting(np.array(action, space.dtype)))
        running.metadata = {}
        monkeypatch.setattr(running, "width", space.shape[0] if space.shape else None)
        answer = running._answer
        monkeypatch.setattr(running, "_answer", lambda *given, to=answer: _any_space(to, space, *given))
        if passes:
            calling = caller(running, space=space)
            spaces(calling)
            assert calling.report.has_passed("10.2 spaces/agree")
        else:
            assert broken(caller(running, space=space))[0] == "10.2 spaces/agree"


def _any_space(answer, space, endpoint, connection, infer):
    """A server whose run has `space`; the honest one below knows boxes only."""
    if infer.spaces.action != space:
        return reject(f"{infer.spaces.action}, this run has {space}")
    rest = type(infer)(infer.observation, infer.env_indices, infer.step_ids)
    answer.__self__.width = 2
    return answer(endpoint, connection, rest)


@pytest.mark.parametrize(
    "action", [np.zeros((4, 2, 2)), np.zeros((4, 2, 2), np.int64), np.full((4, 2, 2), 2, np.float32)]
)
def test_actions_of_another_dtype_or_outside(server, caller, action):
    assert broken(caller(server(change=acting(action))))[0] == "10.2 spaces/agree"


def test_a_server_that_refuses_its_own_space(server, caller):
    running = server()
    running.width = 5

    assert broken(caller(running)) == (
        "10.2 spaces/agree",
        "Box(2,) declared: expected an action, closed with 1008 plugrl-server-reject: action_dim 2, this run has 5",
    )


@pytest.mark.parametrize("close", [RESYNC, reject("no"), None])
def test_a_server_that_takes_a_refusal_lightly(server, caller, monkeypatch, close):
    running = server()
    answer = running._answer

    def lax(endpoint, connection, infer):
        honest = answer(endpoint, connection, infer)
        return close if honest is not None else None

    monkeypatch.setattr(running, "_answer", lax)
    assert broken(caller(running, timeout=0.3))[0] == "10.2 spaces/disagree"
