"""Phase exchange, against honest and broken servers."""

import time

import pytest
from plugrl_protocol.closing import Close
from plugrl_protocol.conformance.calling.caller import KeyNeededError
from plugrl_protocol.conformance.calling.talk import ServerClosedError
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.conformance.server_phases.exchange import exchange
from plugrl_protocol.messages import Infer
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory


def broken(calling) -> tuple[str, str]:
    with pytest.raises(ViolationError) as raised:
        exchange(calling)
    return raised.value.clause, raised.value.detail


@pytest.mark.parametrize("changes", [{}, {"image_key": "cam", "image_size": 64, "exchanges": 3}])
def test_an_honest_server_passes(server, caller, changes):
    calling = caller(server(), **changes)
    exchange(calling)
    report = calling.report

    assert report.notes == []
    for clause in (
        "1.1 framing/compression",
        "1.1 framing/size",
        "1.2 auth/ignored",
        "1.3 http/healthz",
        "3.1 codec/unknown-keys",
        "3.4 observation/text",
        "4.3 feedback/any-set",
        "5.2 infer/ragged",
        "5.3 action/time-major",
        "5.4 feedback/no-reply",
        "6 batching/idle",
        "7.7 closing/liveness",
    ):
        assert report.has_passed(clause), clause


def test_a_server_with_a_key(server, caller):
    running = server(key="secret")
    calling = caller(running, api_key="secret", exchanges=3)
    exchange(calling)
    assert not calling.report.has_passed("1.2 auth/ignored")

    with pytest.raises(KeyNeededError):
        exchange(caller(running))
    with pytest.raises(KeyNeededError):
        exchange(caller(running, api_key="other"))


def test_a_server_without_a_key_that_minds_one(server, caller, monkeypatch):
    running = server()
    upgrade = running._upgrade

    def minding(endpoint):
        while not endpoint.handshake and not endpoint.ended:
            endpoint.pump(0.1)
        running.key = "x" if endpoint.handshake and "Authorization" in endpoint.handshake[0].headers else None
        return upgrade(endpoint)

    monkeypatch.setattr(running, "_upgrade", minding)

    assert broken(caller(running))[0] == "1.2 auth/ignored"


def test_compression_that_is_accepted(server, caller):
    running = server()
    running.extensions = [ServerPerMessageDeflateFactory()]

    assert broken(caller(running))[0] == "1.1 framing/compression"


def test_health_checks_that_are_missing_are_notes(server, caller, monkeypatch):
    calling = caller(server(), exchanges=3)
    monkeypatch.setattr(calling, "get", lambda path: 404)
    exchange(calling)

    assert [note.clause for note in calling.report.notes] == ["1.3 http/healthz", "1.3 http/readyz"]


def closing_when(running, condition, monkeypatch):
    """Make a server close on the infers for which `condition(number, infer)` is true."""
    answer, count = running._answer, [0]

    def choosy(endpoint, connection, infer: Infer):
        count[0] += 1
        return Close(1011, "oops") if condition(count[0], infer) else answer(endpoint, connection, infer)

    monkeypatch.setattr(running, "_answer", choosy)


@pytest.mark.parametrize(
    ("condition", "clause"),
    [
        (lambda number, infer: number == 1, "4.2 exchange/progress"),
        (lambda number, infer: number == 2, "4.3 feedback/any-set"),
        (lambda number, infer: infer.observation.text.nbytes > 2**20, "1.1 framing/size"),
        (lambda number, infer: number > 8 and infer.env_indices.tolist() == [0, 1], "6 batching/idle"),
    ],
)
def test_a_server_that_closes(server, caller, monkeypatch, condition, clause):
    running = server()
    closing_when(running, condition, monkeypatch)

    try:
        found = broken(caller(running))[0]
    except ServerClosedError:
        found = "4.2 exchange/progress"
    assert found == clause


def test_a_server_that_serves_one_client_at_a_time(server, caller, monkeypatch):
    running = server()
    serve, busy = running._serve, []

    def one_at_a_time(sock):
        while busy and not running.over:
            time.sleep(0.01)
        busy.append(sock)
        try:
            serve(sock)
        finally:
            busy.remove(sock)

    monkeypatch.setattr(running, "_serve", one_at_a_time)

    assert broken(caller(running, timeout=0.3)) == (
        "6 batching/idle",
        "beside idle clients: no answer to the upgrade within 0.3 s",
    )


def test_actions_out_of_order(server, caller):
    def swap(kind, wire):
        if kind == "action":
            wire["data"]["env_ids"] = wire["data"]["env_ids"][::-1]
        return wire

    with pytest.raises(Exception, match="in their order") as raised:
        exchange(caller(server(change=swap)))
    assert raised.value.clause == "4.3 action/env-ids"
