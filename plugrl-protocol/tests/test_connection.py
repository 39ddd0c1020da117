"""SPEC 4 and 7: one end of a connection, its deadlines, and that two ends never disagree."""

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
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
        return Infer(observation, indices, zeros, **changes)
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


# Random conversations


TABLE = {
    Turn.METADATA: (Role.SERVER, Turn.INFER),
    Turn.INFER: (Role.CLIENT, Turn.ACTION),
    Turn.ACTION: (Role.SERVER, Turn.FEEDBACK),
    Turn.FEEDBACK: (Role.CLIENT, Turn.INFER),
}
ENVS = st.lists(st.sampled_from([0, 1, 2, 3, 65_535]), min_size=1, max_size=4, unique=True)
KINDS = st.sampled_from(list(Turn))
ROLES = st.sampled_from(list(Role))


class Conversation(RuleBasedStateMachine):
    """Two ends over a slow network, both of which try everything at any time; a model says what may work."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.connect()

    def connect(self) -> None:
        timeouts = Timeouts(feedback=50, action=70, metadata=30)
        self.ends = {role: Connection(role, now=self.now, timeouts=timeouts) for role in Role}
        self.inbox: dict[Role, deque[bytes]] = {role: deque() for role in Role}
        self.turn = Turn.METADATA
        self.asked: list[int] = []
        self.holders: set[int] = set()

    def legal(self, role: Role, kind: Turn, envs: list[int], strict: bool) -> bool:
        if kind is not self.turn or TABLE[kind][0] is not role:
            return False
        if kind is Turn.ACTION:
            return envs == self.asked
        return not (strict and kind is Turn.FEEDBACK) or set(envs) <= self.holders

    def advance(self, kind: Turn, envs: list[int]) -> None:
        if kind is Turn.INFER:
            self.asked = envs
        elif kind is Turn.ACTION:
            self.holders |= set(envs)
        elif kind is Turn.FEEDBACK:
            self.holders -= set(envs)
        self.turn = TABLE[kind][1]

    @rule(role=ROLES, kind=KINDS, envs=ENVS, answer=st.booleans())
    def try_to_send(self, role: Role, kind: Turn, envs: list[int], answer: bool) -> None:
        """An end that tries anything is held back exactly when the model says so."""
        if kind is Turn.ACTION and answer:
            envs = self.asked or envs
        end, before = self.ends[role], self.ends[role].turn
        try:
            frame = end.send(make(kind, envs), self.now)
        except LocalProtocolError:
            assert self.inbox[role] or not self.legal(role, kind, envs, strict=True)
            assert end.turn is before
        else:
            assert not self.inbox[role]
            assert self.legal(role, kind, envs, strict=True)
            self.advance(kind, envs)
            self.inbox[role.peer].append(frame)

    @rule(envs=ENVS)
    def say_what_is_due(self, envs: list[int]) -> None:
        """The conversation goes on as it should."""
        kind, role = self.turn, TABLE[self.turn][0]
        if kind is Turn.FEEDBACK:
            envs = sorted(self.holders & set(envs)) or sorted(self.holders)
        elif kind is Turn.ACTION:
            envs = self.asked
        self.deliver(role)
        self.inbox[role.peer].append(self.ends[role].send(make(kind, envs), self.now))
        self.advance(kind, envs)

    @rule(role=ROLES)
    def deliver(self, role: Role) -> None:
        """What an honest end sent is never refused."""
        while self.inbox[role]:
            self.ends[role].receive(self.inbox[role].popleft(), self.now)
            assert self.ends[role].unheld == frozenset()

    @rule(role=ROLES, kind=KINDS, envs=ENVS)
    def cheat(self, role: Role, kind: Turn, envs: list[int]) -> None:
        """The peer of `role` sends what it must not; or feedback for envs that hold nothing."""
        self.deliver(role)
        end, frame = self.ends[role], raw(kind, envs)
        before = end.turn, [end.holding(env) for env in range(4)]
        if self.legal(role.peer, kind, envs, strict=False):
            if self.legal(role.peer, kind, envs, strict=True):
                return
            end.receive(frame, self.now)
            assert end.unheld == set(envs) - self.holders
            assert end.turn is Turn.INFER
        else:
            self.refused(end, frame)
            assert (end.turn, [end.holding(env) for env in range(4)]) == before
        self.connect()

    @rule(role=ROLES, frame=st.binary(max_size=40))
    def send_rubbish(self, role: Role, frame: bytes) -> None:
        self.refused(self.ends[role], frame)
        self.connect()

    def refused(self, end: Connection, frame: bytes) -> None:
        with pytest.raises(RemoteProtocolError) as caught:
            end.receive(frame, self.now)
        assert caught.value.close.code == (1001 if end.role is Role.SERVER else 1002)
        with pytest.raises(RemoteProtocolError):
            end.receive(raw(self.turn, [0]), self.now)

    @rule(seconds=st.sampled_from([0.5, 7.0, 21.0]), learns=st.booleans())
    def time_passes(self, seconds: float, learns: bool) -> None:
        """Nothing is due before the deadline, something at it; pings are answered."""
        if learns:
            self.ends[Role.SERVER].suspend(self.now)
        self.now += seconds
        closed = [self.run_timers(end) for end in self.ends.values()]
        self.ends[Role.SERVER].resume(self.now)
        if any(closed):
            self.connect()

    def run_timers(self, end: Connection) -> bool:
        while end.deadline is not None and end.deadline <= self.now:
            (action,) = end.tick(self.now)
            if isinstance(action, CloseNow):
                return True
            assert action == Ping()
            end.received_pong(self.now)
        assert end.tick(self.now) == []
        return False

    @invariant()
    def the_ends_agree(self) -> None:
        for role, end in self.ends.items():
            if not self.inbox[role]:
                assert end.turn is self.turn
                assert {env for env in (0, 1, 2, 3, 65_535) if end.holding(env)} == self.holders


TestConversation: Callable[[], None] = Conversation.TestCase
