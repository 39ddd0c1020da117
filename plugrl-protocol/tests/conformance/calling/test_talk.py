"""One connection to a server: every rule for it, broken on purpose."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plugrl_protocol.closing import RESYNC, STOP, Close
from plugrl_protocol.codec import encode
from plugrl_protocol.conformance.calling.talk import RunOverError, ServerClosedError, Talk, box
from plugrl_protocol.conformance.clauses import BY_ID, Side
from plugrl_protocol.conformance.report import Report, ViolationError
from plugrl_protocol.errors import ProtocolError
from plugrl_protocol.messages import Action, Metadata
from plugrl_protocol.spaces import DiscreteSpace
from websockets.frames import Frame, Opcode


@pytest.fixture
def talk(ends, server_options):
    """A talk and the server's end of it."""

    def open_talk(metadata=None, **changes) -> tuple[Talk, object]:
        server, client = ends()
        opened = Talk(client, Report("checker", Side.SERVER), server_options(**({"timeout": 0.2} | changes)))
        if metadata is not None:
            server.send(encode(Metadata(metadata).to_wire()))
            opened.greet()
        return opened, server

    return open_talk


def answer(server, action: np.ndarray, env_ids: list[int] | None, **changes) -> None:
    ids = None if env_ids is None else np.array(env_ids)
    server.send(encode(Action(action, ids).to_wire() | changes))


def broken(run) -> tuple[str, str]:
    with pytest.raises((ViolationError, ProtocolError)) as raised:
        run()
    return raised.value.clause, raised.value.detail


def actions(steps: int, rows: int, width: int = 2) -> np.ndarray:
    return np.zeros((steps, rows, width), np.float32)


def test_an_honest_server(talk):
    opened, server = talk({"action_horizon": 4, "action_dim": 2, "features": ["x"]})
    opened.send(opened.script.infer([3, 1, 2]))
    answer(server, actions(4, 3), [3, 1, 2])

    assert opened.take_action().action.shape == (4, 3, 2)
    opened.tell(opened.script.feedback([1]))
    assert opened._report.exchanges == 1
    assert opened._report.has_passed("5.3 action/time-major")
    assert opened._report.has_passed("5.1 metadata/horizon")
    server.receive(0.1)
    opened.endpoint.receive(0.1)
    opened.judge_liveness()


def test_no_metadata(talk):
    opened, _ = talk()
    assert broken(opened.greet) == ("5.1 metadata/sent", "expected metadata, nothing came within 0.2 s")

    opened, server = talk()
    server.close(Close(1011, "Internal server error."))
    assert broken(opened.greet)[0] == "5.1 metadata/sent"


def test_an_action_before_the_metadata(talk):
    opened, server = talk()
    answer(server, actions(1, 1), [0])

    assert broken(opened.greet)[0] == "4.1 exchange/metadata-first"


def test_a_stop_in_place_of_metadata_is_the_end_of_the_run(talk):
    opened, server = talk()
    server.close(STOP)

    with pytest.raises(RunOverError):
        opened.greet()


@pytest.mark.parametrize(
    ("metadata", "shape", "env_ids", "clause"),
    [
        ({"action_horizon": 4}, (3, 4, 2), [0, 1, 2], "5.3 action/time-major"),
        ({"action_horizon": 4}, (5, 3, 2), [0, 1, 2], "5.1 metadata/horizon"),
        ({"action_dim": 7}, (4, 3, 2), [0, 1, 2], "5.1 metadata/action-dim"),
        ({}, (4, 3, 2), [0, 2, 1], "4.3 action/env-ids"),
        ({}, (4, 3, 2), None, "4.3 action/env-ids"),
        ({}, (4, 2, 2), [0, 1], "5.3 action/shape"),
    ],
)
def test_actions_of_another_layout(talk, metadata, shape, env_ids, clause):
    opened, server = talk(metadata)
    opened.send(opened.script.infer([0, 1, 2]))
    if env_ids is None or shape[1] == len(env_ids):
        answer(server, np.zeros(shape, np.float32), env_ids)
    else:  # what an env-major server sends is no Action
        data = {"env_ids": np.array(env_ids), "action": np.zeros(shape, np.float32)}
        server.send(encode({"message_type": "action", "data": data}))

    assert broken(opened.take_action)[0] == clause


def test_the_horizon_may_not_change_when_it_is_not_declared(talk):
    opened, server = talk({})
    for steps in (4, 5):
        opened.send(opened.script.infer([0]))
        answer(server, actions(steps, 1), [0])
        if steps == 4:
            opened.take_action()
            opened.tell(opened.script.feedback([0]))

    assert broken(opened.take_action) == (
        "5.1 metadata/horizon",
        "action.data.action: expected 4 steps, got float[5,1,2]",
    )


def test_nan_actions(talk):
    opened, server = talk({})
    opened.send(opened.script.infer([0]))
    answer(server, actions(1, 1) * np.nan, [0])

    assert broken(opened.take_action)[0] == "5.3 action/finite"


@pytest.mark.parametrize(
    ("frame", "clause"),
    [
        (b"\xc1", "3 codec/msgpack"),
        (b"\x80", "2 envelope/message-type"),
        (b"\x93\x01\x02\x03", "2 envelope/message-type"),
    ],
)
def test_undecodable_answers_are_violations_and_no_crash(talk, frame, clause):
    opened, server = talk({})
    opened.send(opened.script.infer([0]))
    server.send(frame)

    assert broken(opened.take_action)[0] == clause


def test_text_silence_closes_and_bytes_that_are_no_websocket(talk):
    opened, server = talk({})
    opened.send(opened.script.infer([0]))
    assert broken(opened.take_action) == ("4.2 exchange/progress", "expected action, nothing came within 0.2 s")
    server.send_text("an error page")
    assert broken(opened.take_action)[0] == "7.4 closing/text-frame"
    server.close(Close(1011, "oops"))
    with pytest.raises(ServerClosedError, match="1011 oops"):
        opened.take_action()

    opened, server = talk({})
    server._socket.sendall(Frame(Opcode.BINARY, b"masked").serialize(mask=True))
    assert broken(opened.take_action)[0] == "1 layers/websocket"


def test_a_second_metadata_is_out_of_turn(talk):
    opened, server = talk({})
    opened.send(opened.script.infer([0]))
    server.send(encode(Metadata({}).to_wire()))

    assert broken(opened.take_action)[0] == "4.2 exchange/alternation"


def test_the_expected_close(talk):
    opened, server = talk({})
    server.close(RESYNC)
    assert opened.expect_close(RESYNC, "a test", "7.2 closing/resync") == RESYNC


@pytest.mark.parametrize(
    ("act", "clause", "told"),
    [
        (lambda server: None, "7.2 closing/resync", "it has done nothing within 0.2 s"),
        (lambda server: server.send(b"12345"), "7.2 closing/resync", "it sent a message of 5 bytes"),
        (lambda server: server.send_text("x"), "7.2 closing/resync", "it sent a text frame"),
        (lambda server: server.close(Close(1011, "oops")), "5.4 feedback/info", "it closed with 1011 oops"),
        (lambda server: server.close(Close(1001, "bye")), "5.4 feedback/info", "it closed with 1001 bye"),
    ],
)
def test_another_answer_than_the_expected_close(talk, act, clause, told):
    opened, server = talk({})
    act(server)
    found, detail = broken(lambda: opened.expect_resync("a bad info", "7.2 closing/resync", "5.4 feedback/info"))

    assert found == clause
    assert detail.startswith("a bad info: expected the server to close with 1001 plugrl-server-resync")
    assert told in detail


def test_a_stop_in_place_of_the_expected_close(talk):
    opened, server = talk({})
    server.close(STOP)

    with pytest.raises(RunOverError):
        opened.expect_resync("a test", "7.2 closing/resync")


def test_pings_that_nobody_answers(talk):
    opened, _ = talk({})

    assert broken(opened.judge_liveness)[0] == "7.7 closing/liveness"


@pytest.mark.parametrize(
    ("metadata", "space", "declared"),
    [
        ({"features": ["declare-spaces"]}, None, "Box(1,)"),
        ({"features": ["declare-spaces"]}, DiscreteSpace(4), "Discrete(4)"),
        ({"features": ["declare-spaces"], "action_dim": 3}, None, None),
        ({}, None, None),
    ],
)
def test_the_space_is_declared_to_a_server_that_does_not_know_it(talk, metadata, space, declared):
    opened, server = talk(metadata, space=space)
    opened.send(opened.script.infer([0]))
    wire = server.receive(0.1)

    assert (b"spaces" in wire) == (declared is not None)
    if declared is not None:
        assert str(opened.space) == declared
    answer(server, actions(4, 1, 3), [0])
    opened.take_action()
    opened.tell(opened.script.feedback([0]))
    server.receive(0.1)
    opened.send(opened.script.infer([0]))
    assert b"spaces" not in server.receive(0.1)


def test_the_space_of_the_run(talk):
    opened, _ = talk({"action_dim": 6})

    assert opened.space == box(6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_server_sends_the_checker_does_not_crash(data, damage, mouthpiece, server_options):
    endpoint = mouthpiece()
    opened = Talk(endpoint, Report("checker", Side.SERVER), server_options())
    metadata = Metadata({"action_horizon": 4, "action_dim": 2, "features": ["declare-spaces"], "x": 1}).to_wire()
    action = Action(actions(4, 2), np.array([0, 1])).to_wire()
    broken = None
    try:
        endpoint.says = data.draw(damage(metadata)) if data.draw(st.booleans()) else encode(metadata)
        opened.greet()
        opened.send(opened.script.infer([0, 1]))
        endpoint.says = data.draw(damage(action))
        opened.take_action()
    except (ViolationError, ProtocolError) as error:
        broken = error
    assert broken is None or (broken.clause in BY_ID and broken.detail)
