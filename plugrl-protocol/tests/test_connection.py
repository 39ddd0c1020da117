"""SPEC 4 and 7: one end of a connection, and its deadlines (for random conversations see test_conversations)."""

import math
from typing import Any

import numpy as np
import pytest
from plugrl_protocol.closing import FEEDBACK_TIMEOUT, RESYNC, TEXT_FRAME, TOO_BIG, UNRESPONSIVE, Reaction, reaction
from plugrl_protocol.codec import encode
from plugrl_protocol.connection import CloseNow, Connection, Drop, Ping, Role, Timeouts, Turn
from plugrl_protocol.errors import LocalProtocolError, RemoteProtocolError
from plugrl_protocol.messages import Action, Feedback, Infer, Message, Metadata
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import Declaration, DiscreteSpace

QUIET = Timeouts(ping_interval=None, metadata=None)


def make(kind: Turn, envs: list[int], **changes: Any) -> Any:
    """A valid message of each kind."""
    indices, rows = np.array(envs), len(envs)
    zeros, flags = np.zeros(rows, np.int64), np.zeros(rows, bool)
    observation = Observation({}, {"s": np.ones((rows, 1))}, [""] * rows)
    if kind is Turn.METADATA:
        return Metadata(changes)
    if kind is Turn.INFER:
        return Infer(**({"observation": observation, "env_indices": indices, "step_ids": zeros} | changes))
    if kind is Turn.ACTION:
        return Action(np.zeros((2, rows, 1), np.float32), indices)
    return Feedback(indices, zeros, observation, np.zeros(rows, np.float32), flags, flags, changes.get("info", {}))


def raw(kind: Turn, envs: list[int], **changes: Any) -> bytes:
    """The frame of a message that no Connection has agreed to send."""
    return encode(make(kind, envs, **changes).to_wire())


class Pair:
    """Two ends, and the exchange between them."""

    def __init__(self, timeouts: Timeouts = QUIET, now: float = 0.0) -> None:
        self.server = Connection(Role.SERVER, now=now, timeouts=timeouts)
        self.client = Connection(Role.CLIENT, now=now, timeouts=timeouts)

    def pass_on(self, kind: Turn, envs: list[int], now: float = 0.0, **changes: Any) -> Message:
        sender, receiver = (
            (self.server, self.client) if kind in (Turn.METADATA, Turn.ACTION) else (self.client, self.server)
        )
        return receiver.receive(sender.send(make(kind, envs, **changes), now), now)

    def to(self, turn: Turn, now: float = 0.0, **metadata: Any) -> "Pair":
        for kind in list(Turn)[: list(Turn).index(turn)]:
            self.pass_on(kind, [3, 1], now, **(metadata if kind is Turn.METADATA else {}))
        return self


def test_a_whole_exchange() -> None:
    pair = Pair()
    metadata = pair.pass_on(Turn.METADATA, [], features=["a", "b"], action_horizon=2)
    assert isinstance(metadata, Metadata)
    assert pair.client.features == pair.server.features == {"a", "b"}
    for envs in ([3, 1], [1]):
        pair.pass_on(Turn.INFER, envs)
        assert pair.server.action_pending
        assert pair.client.action_pending
        pair.pass_on(Turn.ACTION, envs)
        assert not pair.server.action_pending
        assert all(end.holding(env) for end in (pair.server, pair.client) for env in envs)
        feedback = pair.pass_on(Turn.FEEDBACK, [1])
        assert isinstance(feedback, Feedback)
        assert not pair.server.holding(1)
        assert pair.server.holding(3)


def test_nothing_is_reusable_where_the_server_does_not_offer_it() -> None:
    pair = Pair().to(Turn.FEEDBACK)
    pair.pass_on(Turn.FEEDBACK, [3, 1])
    assert not pair.client.reusable(np.array([3, 1])).any()


def test_two_infers_in_a_row_are_closed_for_resync_and_the_error_sticks() -> None:
    server = Pair().to(Turn.ACTION).server
    with pytest.raises(RemoteProtocolError) as caught:
        server.receive(raw(Turn.INFER, [3]), 0)
    assert (caught.value.clause, caught.value.close) == ("4.2 exchange/alternation", RESYNC)
    with pytest.raises(RemoteProtocolError) as again:
        server.receive(raw(Turn.FEEDBACK, [3]), 0)
    assert again.value is caught.value
    with pytest.raises(LocalProtocolError, match="the connection is closing"):
        server.send(make(Turn.ACTION, [3, 1]), 0)


@pytest.mark.parametrize(
    "frame",
    [b"", b"\xc1", b"\x90", encode({"message_type": "infer"}), raw(Turn.ACTION, [0]), raw(Turn.INFER, [0])[:-1]],
)
def test_lesson_2_whatever_a_client_sends_is_its_own_fault(frame: bytes) -> None:
    server = Pair().to(Turn.INFER).server
    with pytest.raises(RemoteProtocolError) as caught:
        server.receive(frame, 0)
    assert caught.value.close == RESYNC
    assert server.turn is Turn.INFER


def test_an_unsplittable_info_is_closed_for_resync() -> None:
    pair = Pair().to(Turn.FEEDBACK)
    wire = make(Turn.FEEDBACK, [3, 1]).to_wire()
    wire["data"]["info"] = {"task": "pick"}
    with pytest.raises(RemoteProtocolError) as caught:
        pair.server.receive(encode(wire), 0)
    assert (caught.value.clause, caught.value.close) == ("5.4 feedback/info", RESYNC)


def test_a_client_complains_in_its_own_words_and_tries_again() -> None:
    client = Pair().client
    with pytest.raises(RemoteProtocolError) as caught:
        client.receive(raw(Turn.ACTION, [0]), 0)
    assert caught.value.close.code == 1002
    assert caught.value.close.reason == caught.value.detail
    assert reaction(caught.value.close) is Reaction.RECONNECT


def test_a_text_frame_is_fatal_to_a_client_and_a_resync_to_a_server() -> None:
    for role, close in ((Role.CLIENT, TEXT_FRAME), (Role.SERVER, RESYNC)):
        end = Connection(role, now=0)
        with pytest.raises(RemoteProtocolError) as caught:
            end.receive_text(1)
        assert (caught.value.clause, caught.value.close) == ("7.4 closing/text-frame", close)
        with pytest.raises(LocalProtocolError):  # SPEC 7.4: send nothing more
            end.send(make(Turn.METADATA if role is Role.SERVER else Turn.INFER, [0]), 2)
    assert reaction(TEXT_FRAME) is Reaction.FATAL


def test_a_frame_over_the_cap_is_refused_with_1009_on_the_way_in_and_out() -> None:
    frame = raw(Turn.METADATA, [], pad="x" * 100)
    client = Connection(Role.CLIENT, now=0, max_frame=len(frame) - 1)
    with pytest.raises(RemoteProtocolError, match=f"expected at most {len(frame) - 1} bytes") as caught:
        client.receive(frame, 0)
    assert (caught.value.clause, caught.value.close) == ("1.1 framing/size", TOO_BIG)
    server = Connection(Role.SERVER, now=0, max_frame=len(frame) - 1)
    with pytest.raises(LocalProtocolError, match="frame: expected at most"):
        server.send(make(Turn.METADATA, [], pad="x" * 100), 0)
    assert server.turn is Turn.METADATA
    assert Connection(Role.CLIENT, now=0, max_frame=len(frame)).receive(frame, 0)


def test_what_cannot_be_encoded_changes_nothing() -> None:
    server = Connection(Role.SERVER, now=0)
    with pytest.raises(LocalProtocolError, match=r"metadata\.data\.x: a set may not travel"):
        server.send(Metadata({"x": {1}}), 0)
    assert server.turn is Turn.METADATA


def test_lesson_4_unheld_rows_are_reported_to_the_server() -> None:
    server = Pair().to(Turn.FEEDBACK).server
    server.receive(raw(Turn.FEEDBACK, [1, 8]), 0)
    assert server.unheld == {8}


def test_a_feature_is_used_only_when_listed() -> None:
    spaces = Declaration(DiscreteSpace(2))
    reuse = {"reuse": np.array([False, False])}
    pair = Pair().to(Turn.INFER)
    with pytest.raises(LocalProtocolError, match="the server does not offer reuse-feedback-obs"):
        pair.client.send(make(Turn.INFER, [3, 1], **reuse), 0)
    with pytest.raises(LocalProtocolError, match="the server does not offer declare-spaces"):
        pair.client.send(make(Turn.INFER, [3, 1], spaces=spaces), 0)
    assert pair.server.receive(raw(Turn.INFER, [3, 1], spaces=spaces), 0)  # an unknown key, to such a server
    offering = Pair().to(Turn.INFER, features=["declare-spaces"])
    infer = offering.pass_on(Turn.INFER, [3, 1], spaces=spaces)
    assert isinstance(infer, Infer)
    assert infer.spaces == spaces


def test_a_refused_reuse_leaves_the_turn_where_it_was() -> None:
    server = Connection(Role.SERVER, now=0, timeouts=QUIET)
    server.send(make(Turn.METADATA, [], features=["reuse-feedback-obs"]), 0)
    nothing = Observation({}, {}, [])
    with pytest.raises(RemoteProtocolError) as caught:
        server.receive(raw(Turn.INFER, [3], observation=nothing, reuse=np.array([True])), 0)
    assert caught.value.clause == "10.1 reuse/held"
    assert server.turn is Turn.INFER
    assert not server.action_pending


def test_reuse_that_is_not_offered_is_refused() -> None:
    server = Pair().to(Turn.INFER).server
    with pytest.raises(RemoteProtocolError) as caught:
        server.receive(raw(Turn.INFER, [3, 1], reuse=np.array([False, False])), 0)
    assert (caught.value.clause, caught.value.close) == ("10.1 reuse/unoffered", RESYNC)


# Deadlines


@pytest.mark.parametrize("name", ["feedback", "action", "metadata", "ping_interval", "ping_timeout", "close"])
@pytest.mark.parametrize("value", [0, -1, -0.5, math.inf, -math.inf, math.nan, "60", True])
def test_lesson_6_timeouts_are_validated(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} timeout: expected a positive, finite number of seconds, got"):
        Timeouts(**{name: value})


def test_timeouts_may_be_whole_or_none() -> None:
    assert Timeouts(feedback=1, action=None).feedback == 1
    end = Connection(Role.CLIENT, now=5, timeouts=Timeouts(*[None] * 6))
    assert end.deadline is None
    assert end.tick(1e9) == []


def test_lesson_6_one_deadline_covers_connecting_and_metadata_another_the_reply() -> None:
    timeouts = Timeouts(metadata=10, action=5, ping_interval=None)
    pair = Pair(timeouts, now=100)
    assert pair.client.deadline == 110
    assert pair.client.tick(109.9) == []
    (close,) = Pair(timeouts, now=100).client.tick(110)
    assert isinstance(close, CloseNow)
    assert close.detail == "no metadata within 10 s of connecting"
    pair.to(Turn.INFER, now=105)
    assert pair.client.deadline is None
    pair.pass_on(Turn.INFER, [3, 1], now=200)
    assert pair.client.deadline == 205
    (close,) = pair.client.tick(205)
    assert isinstance(close, CloseNow)
    assert close.detail == "no action within 5 s of the infer"
    assert close.close.code == 1001


def test_feedback_is_awaited_from_its_action_on() -> None:
    pair = Pair(Timeouts(feedback=60, ping_interval=None))
    for turn in (Turn.METADATA, Turn.INFER):
        pair.pass_on(turn, [3, 1], now=1)
        assert pair.server.deadline is None
    pair.pass_on(Turn.ACTION, [3, 1], now=2)
    assert pair.server.deadline == 62
    assert pair.server.tick(61.9) == []
    assert pair.server.tick(62) == [CloseNow(FEEDBACK_TIMEOUT, "no feedback within 60 s of the action")]
    assert pair.server.tick(63) == []
    assert pair.client.deadline is None


def test_feedback_in_time_ends_the_wait() -> None:
    pair = Pair(Timeouts(feedback=60, ping_interval=None)).to(Turn.FEEDBACK, now=2)
    pair.pass_on(Turn.FEEDBACK, [3, 1], now=61)
    assert pair.server.deadline is None


def test_lesson_8_the_feedback_deadline_stands_still_while_the_server_learns() -> None:
    server = Pair(Timeouts(feedback=60, ping_interval=None)).to(Turn.FEEDBACK, now=0).server
    server.suspend(10)
    server.suspend(20)
    assert server.deadline is None
    assert server.tick(1_000) == []
    server.resume(1_000)
    server.resume(1_001)
    assert server.deadline == 1_050


def test_an_action_sent_while_the_server_learns_waits_its_whole_time_afterwards() -> None:
    pair = Pair(Timeouts(feedback=60, ping_interval=None)).to(Turn.ACTION)
    pair.server.suspend(1)
    pair.pass_on(Turn.ACTION, [3, 1], now=5)
    assert pair.server.deadline is None
    pair.server.resume(100)
    assert pair.server.deadline == 160
    pair.server.suspend(110)
    pair.pass_on(Turn.FEEDBACK, [3, 1], now=120)
    pair.server.resume(130)
    assert pair.server.deadline is None


def test_pings_go_out_every_interval_and_a_silent_peer_is_given_up() -> None:
    end = Connection(Role.SERVER, now=0)
    assert end.deadline == 20
    assert end.tick(19.9) == []
    sent = []
    for now in (20, 40, 60):
        assert end.deadline == now
        sent += end.tick(now)
    assert sent == [Ping()] * 3
    assert end.deadline == 80  # 60 s after the first ping that nothing answered
    assert end.tick(80) == [CloseNow(UNRESPONSIVE, "no answer to pings, not heard of for 80 s")]


@pytest.mark.parametrize("sign", ["pong", "frame"])
def test_any_sign_of_life_counts(sign: str) -> None:
    end = Connection(Role.CLIENT, now=0, timeouts=Timeouts(metadata=None))
    for now in (20, 40, 60):
        assert end.tick(now) == [Ping()]
    if sign == "pong":
        end.received_pong(79)
    else:
        end.receive(raw(Turn.METADATA, []), 79)
    assert end.tick(80) == [Ping()]
    assert end.deadline == 100
    assert end.tick(100) == [Ping()]
    assert end.tick(120) == [Ping()]
    assert end.tick(140)[0] == CloseNow(UNRESPONSIVE, "no answer to pings, not heard of for 61 s")


def test_pings_go_on_while_the_server_learns() -> None:
    server = Pair(Timeouts(metadata=None)).to(Turn.FEEDBACK).server
    server.suspend(0)
    assert server.tick(20) == [Ping()]


def test_after_our_close_only_the_close_timeout_runs() -> None:
    pair = Pair(Timeouts()).to(Turn.FEEDBACK)
    pair.server.close_sent(10)
    assert pair.server.deadline == 12
    assert pair.server.tick(11.9) == []
    crossing = pair.client.send(make(Turn.FEEDBACK, [3]), 11)
    assert isinstance(pair.server.receive(crossing, 11), Feedback)  # counted as received and discarded
    assert pair.server.deadline == 12
    assert pair.server.tick(12) == [Drop()]
    with pytest.raises(LocalProtocolError):
        pair.server.send(make(Turn.ACTION, [3]), 12)
