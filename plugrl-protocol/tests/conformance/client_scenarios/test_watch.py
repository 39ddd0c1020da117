"""Watch mode, against clients in a thread."""

import numpy as np
import pytest
from plugrl_protocol.closing import Close, Reaction
from plugrl_protocol.conformance.client_scenarios.watch import watch
from plugrl_protocol.spaces import Declaration, DiscreteSpace


def client(probe_client, **changes):
    return lambda port: probe_client(port, **changes)


def test_an_honest_client_is_stopped_after_the_steps(play, probe_client):
    report, reaction = play(watch, steps=5)

    assert report.clean
    assert report.notes == []
    assert reaction is Reaction.END
    assert report.exchanges == 5
    assert report.has_passed("7.1 closing/stop")
    assert report.has_passed("7.7 closing/liveness")


def test_a_client_may_leave_by_itself(play, probe_client):
    report, _ = play(watch, client(probe_client, steps=3), steps=5)

    assert report.clean
    assert report.has_passed("7.5 closing/done")


def test_a_client_that_completes_nothing(play, probe_client):
    report, _ = play(watch, client(probe_client, steps=0))

    assert [(one.clause, one.detail) for one in report.violations] == [
        ("4.2 exchange/progress", "the client closed with 1000 before it completed an exchange")
    ]


@pytest.mark.parametrize(("close", "noted"), [(Close(1001, "bye"), True), (Close(1008, "no"), False)])
def test_other_ways_to_leave(play, probe_client, close, noted):
    class Leaving(probe_client):
        def exchange(self):
            return close if self.exchanges == 2 else super().exchange()

    report, _ = play(watch, Leaving)

    assert [note.clause for note in report.notes] == (["7.5 closing/done"] if noted else [])
    assert [one.clause for one in report.violations] == ([] if noted else ["4.2 exchange/progress"])


def test_a_client_that_just_goes(play, probe_client):
    class Going(probe_client):
        def exchange(self):
            if self.exchanges == 2:
                self.endpoint.drop()
            return super().exchange()

    report, _ = play(watch, Going)

    assert report.clean
    assert [note.clause for note in report.notes] == ["7.5 closing/done"]


def test_a_declared_space_is_kept(play, probe_client):
    seen = []

    class Declaring(probe_client):
        def receive(self):
            message = super().receive()
            if not isinstance(message, Close):
                seen.append(message)
            return message

        def run(self):
            self.declaration = Declaration(DiscreteSpace(2, start=5))
            return super().run()

    report, _ = play(watch, Declaring, features=frozenset({"declare-spaces"}), steps=3)
    actions = [message["data"]["action"] for message in seen if message["message_type"] == "action"]

    assert report.clean
    assert "action_dim" not in seen[0]["data"]
    assert {value for action in actions for value in np.unique(action).tolist()} <= {5, 6}
    assert actions[0].shape == (4, 3)
    assert report.has_passed("10.2 spaces/first-infer")


def test_a_violation_ends_it_at_once_with_the_last_frames(play, probe_client):
    def spoil(kind, wire):
        if kind == "feedback":
            wire["data"]["rewards"] = np.full(len(wire["env_indices"]), np.nan, np.float32)
        return wire

    report, _ = play(watch, client(probe_client, change=spoil))

    assert [one.clause for one in report.violations] == ["5.4 feedback/finite"]
    assert report.violations[0].evidence[0] == "the last frames, newest last:"
    assert any("client: feedback" in line for line in report.violations[0].evidence)
