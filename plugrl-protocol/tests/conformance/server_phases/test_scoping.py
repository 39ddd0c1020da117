"""Phase scoping, against honest and broken servers."""

import pytest
from plugrl_protocol.closing import RESYNC
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.conformance.server_phases.scoping import scoping


def test_an_honest_server_passes(server, caller):
    calling = caller(server())
    scoping(calling)

    assert calling.report.has_passed("4.4 indices/scope")
    assert calling.report.has_passed("7.6 feedback/no-step-state")


@pytest.mark.parametrize(("refused", "clause"), [((5,), "4.4 indices/scope"), ((1, 9), "7.6 feedback/no-step-state")])
def test_a_server_that_closes(server, caller, monkeypatch, refused, clause):
    running = server()
    answer, asked = running._answer, []

    def choosy(endpoint, connection, infer):
        asked.append(tuple(infer.env_indices.tolist()))
        again = refused == (5,) and asked.count((5,)) > 1
        return RESYNC if asked[-1] == refused and (again or len(refused) > 1) else answer(endpoint, connection, infer)

    monkeypatch.setattr(running, "_answer", choosy)
    with pytest.raises(ViolationError) as raised:
        scoping(caller(running))
    assert raised.value.clause == clause
