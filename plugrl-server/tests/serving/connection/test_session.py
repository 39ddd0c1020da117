"""One client's conversation: every fault closes its own connection with the right code, and nothing else happens."""

import logging

import numpy as np
import pytest
from plugrl_protocol.closing import STOP
from plugrl_protocol.codec import encode
from plugrl_server.serving.connection.session import MOST_WARNINGS

RESYNC = "1001 plugrl-server-resync"


@pytest.fixture
def run(simulate, fakes):
    return simulate(fakes.algorithm())


def asked(run, envs=(0, 1)):
    """A client with an action, so that a feedback is due."""
    client = run.client()
    client.say(client.infer(envs))
    run.runtime.settle()
    return client


def test_an_algorithm_sees_which_environments_a_connection_has_and_when_it_is_gone(run):
    known = []
    run.algorithm.note_client = known.append
    client = asked(run, (3, 1))
    client.say(client.feedback((3, 1)))
    client.say(client.infer((2, 5, 1)))
    run.runtime.settle()
    assert [(whose.envs, whose.is_open) for whose in known] == [((1, 2, 3, 5), True)]
    client.leave()
    assert not known[0].is_open


# What clients send (lesson 2) ----------------------------------------------------------------------------------------

BROKEN_FRAMES = {
    "not msgpack": b"\xc1",
    "empty": b"",
    "truncated": encode({"message_type": "infer"})[:-3],
    "no map": encode([1, 2]),
    "nil": encode(None),
    "no type": encode({"data": {}}),
    "unknown type": encode({"message_type": "hello"}),
    "server's type": encode({"message_type": "metadata", "data": {}}),
}


@pytest.mark.parametrize("frame", BROKEN_FRAMES.values(), ids=BROKEN_FRAMES)
def test_a_frame_that_is_no_message_is_closed_for_resync(run, frame):
    honest, liar = asked(run), run.client()
    liar.say(frame)
    assert liar.closed == RESYNC
    honest.say(honest.feedback((0, 1)))
    run.runtime.settle()
    assert len(run.algorithm.stored) == 2


WRONG_INFERS = {
    "data is nil": {"data": None},
    "scalar index": {"env_indices": 3},
    "duplicate index": {"env_indices": np.array([1, 1])},
    "negative index": {"env_indices": np.array([0, -1])},
    "high index": {"env_indices": np.array([0, 65_536])},
    "float index": {"env_indices": np.array([0.0, 1.0])},
    "no step ids": {"step_ids": None},
    "unoffered reuse": {"reuse": np.array([True, False])},
    "bad declaration": {"spaces": {"action": {"kind": "sphere"}}},
}


@pytest.mark.parametrize("change", WRONG_INFERS.values(), ids=WRONG_INFERS)
def test_a_wrong_infer_is_closed_for_resync(run, change):
    client = run.client()
    client.say(client.infer((0, 1)) | change)
    run.runtime.settle()
    assert client.closed == RESYNC
    assert run.algorithm.batches == []


def test_observations_that_do_not_fit_are_closed_for_resync(run):
    for wrong in (
        lambda client: client.infer((0, 1), data=client.observation([1.0])),  # too few rows
        lambda client: client.infer((0, 1), data=client.observation([1.0, 2.0, 3.0])),
        lambda client: client.infer(data={"images": {}, "states": {"other": np.zeros((1, 3))}, "text": [""]}),
        lambda client: client.infer(
            data={"images": {}, "states": {"obs": [[1.0, 2.0], [3.0]]}, "text": [""]}
        ),  # ragged
    ):
        client = run.client()
        client.say(wrong(client))
        run.runtime.settle()
        assert client.closed == RESYNC
    assert run.algorithm.batches == []


@pytest.mark.parametrize("name", ["one\n12:00:00 ERROR two", "x" * 1_000_000])
def test_names_that_a_client_makes_up_neither_break_nor_fill_the_log(run, simulate, fakes, caplog, name):
    stranger, rejected = run.client(key=name), run.client()
    stranger.say(stranger.infer())
    rejected.session.reject(f"observation states.{name}, this run has states.obs")
    free = simulate(fakes.algorithm(policy=fakes.policy(state_keys=None))).client(key=name)
    free.say(free.infer())
    free.session._clock.settle()
    free.say(free.feedback(values=[np.nan]))
    assert len(caplog.messages) == 3
    assert all(len(message) < 700 and message.isprintable() for message in caplog.messages)


def test_another_width_than_the_runs_is_closed_for_resync(run, caplog):
    asked(run)
    client = run.client(width=4)
    client.say(client.infer())
    assert client.closed == RESYNC
    assert "infer.data.states.obs: expected [n,3] as everywhere in this run, got [n,4]" in caplog.text


WRONG_FEEDBACK = {
    "string rewards": {"rewards": ["a", "b"]},
    "rewards of two dimensions": {"rewards": np.ones((2, 1), np.float32)},
    "too few flags": {"terminated": np.array([True])},
    "flags of ints": {"truncated": np.array([0, 1])},
    "unsplittable info": {"info": {"task": "pick"}},
    "non-numeric return": {"info": {"episode": {"r": np.array(["a", "b"])}}},
    "no observation": {"obs": None},
    "an open key": {"extra": 1},
}


@pytest.mark.parametrize("change", WRONG_FEEDBACK.values(), ids=WRONG_FEEDBACK)
def test_a_wrong_feedback_is_closed_for_resync_and_its_rows_are_counted(run, change):
    client = asked(run)
    message = client.feedback((0, 1))
    client.say(message | {"data": message["data"] | change})
    run.runtime.settle()
    assert client.closed == RESYNC
    assert run.algorithm.stored == []
    assert str(run.accounting.total) == "received 2 = stored 0 + discarded 2 (malformed 2)"


def test_two_infers_in_a_row_are_closed_for_resync(run, caplog):
    client = asked(run)
    client.say(client.infer())
    assert client.closed == RESYNC
    assert "4.2 exchange/alternation" in caplog.text


def test_a_text_frame_is_closed_for_resync(run):
    client = run.client()
    client.session.received_text()
    assert client.closed == RESYNC


def test_a_fault_is_logged_in_one_line_without_traceback(run, caplog):
    """Lesson 28."""
    client = run.client()
    client.say(client.infer(env_indices=np.array([1, 1])))
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert lines[0].exc_info is None
    assert "client 0: infer.env_indices" in lines[0].getMessage()


def test_a_fault_of_ours_closes_only_the_connection_it_happened_on(run, caplog):
    client, other = run.client(), run.client()
    run.source.complaint = lambda *_: None
    client.session._reader = object()
    client.say(client.infer())
    assert client.closed == "1011 Internal server error."
    assert "internal error: AttributeError" in caplog.text
    run.exchange(other)
    assert len(run.algorithm.stored) == 1


def test_a_client_that_errs_for_ever_does_not_fill_the_log(run, caplog):
    client = run.client()
    for _ in range(MOST_WARNINGS):
        client.say(client.infer((0,)))
        run.runtime.settle()
        client.say(client.feedback((8, 9)))
        run.runtime.settle()
    assert caplog.text.count("arrived with no step state") == MOST_WARNINGS
    assert "further warnings of this connection are not shown" in caplog.text


# Closing and accounting ----------------------------------------------------------------------------------------------


def test_feedback_that_crosses_our_close_is_counted_as_received_and_discarded(run):
    client = asked(run)
    client.session.close(STOP)
    client.say(client.feedback((0, 1)))
    client.say(client.infer())
    client.session.received_text()
    client.leave()
    assert client.closed == "1001 plugrl-server-stop"
    assert str(run.accounting.total) == "received 2 = stored 0 + discarded 2 (after_close 2)"
    assert run.accounting.connections[0].ending == "closed"


def test_a_connection_that_was_cut_says_so(run):
    client = asked(run)
    client.say(client.feedback((0, 1)))
    client.leave(handshake=False)
    run.runtime.settle()
    assert run.accounting.connections[0].ending == "cut"
    assert run.accounting.total.stored == 2


def test_the_end_is_told_once(run):
    client = run.client()
    client.leave()
    client.leave()
    assert run.events.named("disconnected") == [(0,)]


def test_a_peer_that_never_answers_our_close_is_dropped(run):
    client = run.client(close=2.0)
    client.session.close(STOP)
    run.runtime.advance(1.9)
    assert not client.aborted
    run.runtime.advance(0.2)
    assert client.aborted


# Time ----------------------------------------------------------------------------------------------------------------


def test_a_frozen_client_is_pinged_and_then_evicted(run):
    """Lesson 5: SIGSTOP, a black hole."""
    client = run.client(ping_interval=20.0, ping_timeout=60.0, close=2.0)
    run.runtime.advance(20.5)
    assert client.pings == 1
    client.session.received_pong()
    run.runtime.advance(200)
    assert client.closed == "1011 keepalive ping timeout"
    assert client.aborted
    assert run.runtime.now - 100 < 230


def test_a_client_that_answers_pings_may_be_silent_for_ever(run):
    client = run.client(ping_interval=20.0, ping_timeout=60.0)
    for _ in range(50):
        run.runtime.advance(20.1)
        client.session.received_pong()
    assert client.closed is None


def test_an_action_without_feedback_is_closed_in_time(run):
    """SPEC 7.3."""
    client = run.client(feedback=60.0, ping_interval=None)
    client.say(client.infer())
    run.runtime.settle()
    run.runtime.advance(59)
    assert client.closed is None
    run.runtime.advance(2)
    assert client.closed == "1001 Feedback timeout"


def test_only_one_timer_is_pending(run):
    client = run.client()
    for _ in range(10):
        run.exchange(client)
    pending = [alarm for alarm in run.runtime.alarms if alarm.callback == client.session._ring]
    assert len(pending) == 1
    client.leave()
    assert not [alarm for alarm in run.runtime.alarms if alarm.callback == client.session._ring]
