"""One connection of a client: every rule of watch mode, broken on purpose."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plugrl_protocol.closing import Close
from plugrl_protocol.codec import encode
from plugrl_protocol.conformance.clauses import BY_ID
from plugrl_protocol.conformance.client_scenarios.session import LeftError, Session
from plugrl_protocol.conformance.probe_tracker import ProbeTracker
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.errors import ProtocolError
from plugrl_protocol.messages import Feedback, Infer
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import Declaration, DiscreteSpace
from websockets.frames import Frame, Opcode

ACTION = np.zeros((2, 1, 3), np.float32)


def send(client, message, **changes) -> None:
    client.send(encode(message.to_wire() | changes))


def run(opened, client, infer_message, *feedbacks):
    """One exchange, as far as the client keeps to it."""
    send(client, infer_message)
    infer = opened.infer()
    opened.answer(infer, np.zeros((2, len(infer.env_indices), 3), np.float32))
    for feedback in feedbacks:
        send(client, feedback)
        opened.feedback()


def broken(action) -> str:
    with pytest.raises((ViolationError, ProtocolError)) as raised:
        action()
    return raised.value.clause


def test_an_honest_exchange(session, infer, feedback, report):
    opened, client = session()
    run(opened, client, infer([4, 2]), feedback([2]))
    send(client, infer([2]))
    opened.infer()

    assert opened.exchanges == report.exchanges == 1
    assert opened.envs == {4, 2}
    opened.judge_liveness()


def test_silence(session):
    opened, _ = session(timeout=0.05)

    with pytest.raises(ViolationError, match=r"expected the infer, nothing came within 0\.05 s"):
        opened.infer()


def test_pings_that_nobody_answers(session):
    opened, _ = session()
    opened.endpoint.pongs = 0

    assert broken(opened.judge_liveness) == "7.7 closing/liveness"


def test_a_client_that_leaves(session):
    opened, client = session()
    client.close(Close(1000))

    with pytest.raises(LeftError) as raised:
        opened.infer()
    assert raised.value.close == Close(1000)


def test_text_and_bytes_that_are_no_websocket(session):
    opened, client = session()
    client.protocol.send_text(b"hello")
    client.flush()
    assert broken(opened.infer) == "7.4 closing/text-frame"

    opened, client = session()
    client._socket.sendall(Frame(Opcode.BINARY, b"not masked").serialize(mask=False))
    assert broken(opened.infer) == "1 layers/websocket"


@pytest.mark.parametrize(
    ("frame", "clause"),
    [
        (b"", "3 codec/msgpack"),
        (b"\xc1", "3 codec/msgpack"),
        (b"\x81\x01\x02", "3.1 codec/keys"),
        (b"\x93\x01\x02\x03", "2 envelope/message-type"),
        (b"\xdd\xff\xff\xff\xff", "3.3 codec/limits"),
        (b"\x81\xa1x" + b"\x91" * 5000, "3.3 codec/limits"),
    ],
)
def test_undecodable_input_is_a_violation_and_no_crash(session, frame, clause):
    opened, client = session()
    client.send(frame)

    assert broken(opened.infer) == clause


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"env_indices": np.array([-1])}, "4.4 indices/range"),
        ({"env_indices": [0]}, "4.4 indices/dtype"),
        ({"env_indices": np.array([], np.int64)}, "4.4 indices/empty"),
        ({"data": {"images": {}, "states": {"x": [[0.0]]}, "text": ["a"]}}, "5.2 observation/shape"),
        ({"data": {"images": {}, "states": {}, "text": "a"}}, "3.4 observation/text"),
        ({"data": {"states": {}, "text": ["a"]}}, "5.2 observation/keys"),
        ({"step_ids": np.array([0, 0])}, "5.2 infer/shape"),
        ({"reuse": np.array([True, False])}, "10.1 reuse/shape"),
        ({"spaces": {"action": {"kind": "sphere"}}}, "10.2 spaces/action"),
        ({"message_type": "hello"}, "2 envelope/message-type"),
    ],
)
def test_broken_infers(session, infer, change, clause):
    opened, client = session()
    send(client, infer([0]), **change)

    assert broken(opened.infer) == clause


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"info": {"task": "pick"}}, "5.4 feedback/info"),
        ({"info": {"episode": {"r": np.zeros(3)}}}, "5.4 feedback/episode"),
        ({"rewards": np.array([1, 2])}, "5.4 feedback/rewards"),
        ({"rewards": np.array([1.0, np.nan])}, "5.4 feedback/finite"),
        ({"terminated": np.array([1, 0])}, "5.4 feedback/flags"),
    ],
)
def test_broken_feedbacks(session, infer, feedback, change, clause):
    opened, client = session()
    run(opened, client, infer([0, 1]))
    wire = feedback([0, 1]).to_wire()
    client.send(encode(wire | {"data": wire["data"] | change}))

    assert broken(opened.feedback) == clause


def test_two_infers_in_a_row(session, infer):
    opened, client = session()
    run(opened, client, infer([0]))
    send(client, infer([0]))

    assert broken(opened.feedback) == "4.2 exchange/alternation"


def test_feedback_for_an_env_that_holds_no_action(session, infer, feedback):
    opened, client = session()
    run(opened, client, infer([0]))
    send(client, feedback([0, 9]))

    with pytest.raises(ViolationError, match="env 9 holds no action") as raised:
        opened.feedback()
    assert raised.value.clause == "7.6 feedback/held"


def reusing(infer, sent: int, flags: list[bool], width: int = 2) -> Infer:
    image = np.zeros((sent, 2, 2, 3), np.uint8)
    rows = Observation({"cam": image}, {"qpos": np.zeros((sent, width))}, ["x"] * sent)
    return infer(list(range(len(flags))), observation=rows, reuse=np.array(flags))


def test_reuse_of_what_the_server_holds(session, infer, feedback, report):
    opened, client = session()
    run(opened, client, infer([0, 1]), feedback([0, 1], terminated=np.array([False, False])))
    run(opened, client, reusing(infer, 0, [True, True]))

    assert report.has_passed("10.1 reuse/held")


@pytest.mark.parametrize("done", [[True, False], None])
def test_reuse_of_what_it_does_not_hold(session, infer, feedback, done):
    opened, client = session()
    if done is not None:
        run(opened, client, infer([0, 1]), feedback([0, 1], terminated=np.array(done)))
    send(client, reusing(infer, 1, [True, False]))

    assert broken(opened.infer) == "10.1 reuse/held"


def test_reuse_beside_rows_that_look_different(session, infer, feedback):
    opened, client = session()
    run(opened, client, infer([0, 1]), feedback([0, 1], terminated=np.array([False, False])))
    send(client, reusing(infer, 1, [True, False], width=5))

    assert broken(opened.infer) == "10.1 reuse/shape"


def test_features_that_were_not_offered(session, infer, report):
    opened, client = session(features=frozenset())
    send(client, infer([0], spaces=Declaration(DiscreteSpace(2))))
    opened.answer(opened.infer(), ACTION)
    assert [note.clause for note in report.notes] == ["10.2 spaces/unoffered"]

    opened, client = session(features=frozenset())
    send(client, reusing(infer, 1, [False]))
    assert broken(opened.infer) == "10.1 reuse/unoffered"


def test_a_declaration_belongs_in_the_first_infer(session, infer, feedback, report):
    opened, client = session()
    declaring = infer([0], spaces=Declaration(DiscreteSpace(2)))
    run(opened, client, declaring, feedback([0]))
    assert opened.space == DiscreteSpace(2)
    run(opened, client, declaring)

    assert [note.clause for note in report.notes] == ["5.2 infer/step-ids"] or "10.2 spaces/first-infer" in [
        note.clause for note in report.notes
    ]


def test_after_a_resync_the_first_message_is_an_infer_of_all_envs(session, infer, feedback, report):
    opened, client = session(earlier=frozenset({0, 1}))
    send(client, feedback([0]))
    assert broken(opened.infer) == "7.6 reconnect/drop-feedback"

    opened, client = session(earlier=frozenset({0, 1}))
    send(client, infer([1]))
    with pytest.raises(ViolationError, match=r"\[0\] are missing") as raised:
        opened.infer()
    assert raised.value.clause == "7.6 reconnect/all-envs"

    opened, client = session(earlier=frozenset({0, 1}))
    send(client, infer([1, 0, 2]))
    opened.infer()
    assert report.has_passed("7.6 reconnect/all-envs")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_client_sends_the_checker_does_not_crash(data, damage, mouthpiece, report):
    """Honest messages with junk in them, through everything that looks at a message; the probe's tracker too."""
    endpoint = mouthpiece()
    opened = Session(endpoint, report, features=frozenset({"reuse-feedback-obs", "declare-spaces"}), timeout=1.0)
    opened.greet({})
    tracker = ProbeTracker(report.passed, 4, 3, np.dtype(np.float64))
    rows = Observation({}, {"t": np.array([[0.0], [2.0]]), "a": np.zeros((2, 1))}, ["x", "y"])
    envs, zeros, no = np.array([0, 1]), np.zeros(2, np.int64), np.zeros(2, bool)
    space = Declaration(DiscreteSpace(2), env="x", num_envs=2)
    infer = Infer(rows, envs, zeros, reuse=no, spaces=space).to_wire()
    feedback = Feedback(envs, zeros, rows, np.ones(2, np.float32), no, no, {"episode": {"r": np.ones(2)}}).to_wire()
    broken = None
    try:
        for _ in range(3):
            endpoint.says = data.draw(damage(infer)) if data.draw(st.booleans()) else encode(infer)
            asked = opened.infer()
            opened.answer(asked, tracker.answer(asked))
            endpoint.says = data.draw(damage(feedback)) if data.draw(st.booleans()) else encode(feedback)
            tracker.feedback(opened.feedback())
    except (ViolationError, ProtocolError) as error:
        broken = error
    assert broken is None or (broken.clause in BY_ID and broken.detail)
