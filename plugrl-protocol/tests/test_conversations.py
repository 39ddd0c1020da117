"""Random conversations never let the two ends disagree, whatever either of them tries (SPEC 4)."""

from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from plugrl_protocol.codec import encode
from plugrl_protocol.connection import CloseNow, Connection, Ping, Role, Timeouts, Turn
from plugrl_protocol.errors import LocalProtocolError, RemoteProtocolError
from plugrl_protocol.messages import Action, Feedback, Infer, Metadata
from plugrl_protocol.observation import Observation


def make(kind: Turn, envs: list[int]) -> Any:
    """A valid message of each kind."""
    indices, rows = np.array(envs), len(envs)
    zeros, flags = np.zeros(rows, np.int64), np.zeros(rows, bool)
    observation = Observation({}, {"s": np.ones((rows, 1))}, [""] * rows)
    if kind is Turn.METADATA:
        return Metadata({})
    if kind is Turn.INFER:
        return Infer(observation, indices, zeros)
    if kind is Turn.ACTION:
        return Action(np.zeros((2, rows, 1), np.float32), indices)
    return Feedback(indices, zeros, observation, np.zeros(rows, np.float32), flags, flags, {})


def raw(kind: Turn, envs: list[int]) -> bytes:
    """The frame of a message that no Connection has agreed to send."""
    return encode(make(kind, envs).to_wire())


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


TestConversation = Conversation.TestCase
