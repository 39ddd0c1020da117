"""What the reference server answers; and each of its bugs breaks its rule where it can be seen."""

import contextlib
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from plugrl_protocol.closing import FEEDBACK_TIMEOUT, INTERNAL_ERROR, RESYNC, STOP, Close
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.errors import RemoteProtocolError
from plugrl_protocol.messages import Action, Metadata, message_from_wire
from plugrl_protocol.spaces import BoxSpace, Declaration, DiscreteSpace
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.peers.processes import Server, load, reference_server

HORIZON, WIDTH = 4, 7
Wire = dict[str, Any]


def observation(rows: int, width: int = 3) -> Wire:
    return {"images": {}, "states": {"obs": np.zeros((rows, width))}, "text": ["x"] * rows}


def infer(*envs: int, **changes: object) -> Wire:
    indices = np.array(envs, np.int64)
    message = {"message_type": "infer", "data": observation(len(envs)), "env_indices": indices, "step_ids": 0 * indices}
    return message | changes


def feedback(*envs: int, done: bool = False, **changes: object) -> Wire:
    rows = len(envs)
    data = {
        "obs": observation(rows),
        "rewards": np.zeros(rows, np.float32),
        "terminated": np.full(rows, done),
        "truncated": np.zeros(rows, bool),
        "info": {},
    }
    indices = np.array(envs, np.int64)
    return {"message_type": "feedback", "data": data | changes, "env_indices": indices, "step_ids": 0 * indices}


class Talk:
    """A client's end, in the words of the protocol."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    def send(self, *messages: Wire) -> None:
        for message in messages:
            self._socket.send(encode(message))

    def send_raw(self, frame: bytes | str) -> None:
        self._socket.send(frame)

    def receive(self) -> object:
        return message_from_wire(decode(self._socket.recv(timeout=20)))

    def action(self) -> Action:
        message = self.receive()
        assert isinstance(message, Action)
        return message

    def closed(self) -> Close:
        """The close that comes next, and nothing before it."""
        try:
            frame = self._socket.recv(timeout=20)
        except ConnectionClosed as error:
            close = error.rcvd
        else:
            raise AssertionError(f"expected a close, got {frame!r:.80}")
        assert close is not None, "the connection broke"
        return Close(close.code, close.reason)


@contextlib.contextmanager
def connected(server: Server, *, greeted: bool = True) -> Iterator[Talk]:
    with connect(f"ws://127.0.0.1:{server.port}", compression=None, max_size=None, close_timeout=5) as socket:
        talk = Talk(socket)
        if greeted:
            assert isinstance(talk.receive(), Metadata)
        yield talk


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One for all tests that do not end it."""
    with reference_server("--exchanges", "0") as running:
        yield running


class TestExchange:
    def test_introduces_itself_first(self, server: Server) -> None:
        with connected(server, greeted=False) as talk:
            metadata = talk.receive()
        assert isinstance(metadata, Metadata)
        assert (metadata.protocol_version, metadata.action_horizon, metadata.data["action_dim"]) == (1, HORIZON, WIDTH)
        assert metadata.features == {"reuse-feedback-obs", "declare-spaces"}

    def test_answers_ragged_sets_time_major(self, server: Server) -> None:
        with connected(server) as talk:
            for envs in ((0, 1, 2), (2,), (65_535, 7)):
                talk.send(infer(*envs))
                action = talk.action()
                assert action.env_ids.tolist() == list(envs)
                assert action.action.shape == (HORIZON, len(envs), WIDTH)
                assert action.action.dtype == np.float32
                talk.send(feedback(envs[0]))

    def test_takes_frames_over_a_mebibyte(self, server: Server) -> None:
        images = {"cam": np.zeros((16, 224, 224, 3), np.uint8)}
        with connected(server) as talk:
            talk.send(infer(*range(16), data=observation(16) | {"images": images}))
            assert talk.action().action.shape == (HORIZON, 16, WIDTH)

    def test_takes_text_as_an_array_and_as_a_list(self, server: Server) -> None:
        with connected(server) as talk:
            talk.send(infer(0, data=observation(1) | {"text": np.array(["grün"])}), feedback(0), infer(0))
            assert talk.action()
            assert talk.action()

    def test_negotiates_no_compression(self, server: Server) -> None:
        with connect(f"ws://127.0.0.1:{server.port}", compression="deflate") as socket:
            assert "Sec-WebSocket-Extensions" not in socket.response.headers

    def test_keeps_connections_apart(self, server: Server) -> None:
        with connected(server) as one, connected(server) as other:
            one.send(infer(0, 1))
            other.send(infer(1))
            assert one.action().env_ids.tolist() == [0, 1]
            assert other.action().env_ids.tolist() == [1]

    def test_ignores_unknown_keys_of_the_envelope(self, server: Server) -> None:
        with connected(server) as talk:
            talk.send(infer(0, unheard_of=[1, None]))
            assert talk.action()

    @pytest.mark.parametrize("path", ["/healthz", "/readyz"])
    def test_answers_health_checks(self, server: Server, path: str) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
            assert answer.status == 200

    def test_asks_for_the_key(self) -> None:
        with reference_server("--api-key", "secret") as server:
            url = f"http://127.0.0.1:{server.port}/"
            for headers in ({}, {"Authorization": "Api-Key wrong"}):
                with pytest.raises(urllib.error.HTTPError, match="401") as error:
                    urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10)
                error.value.close()


EPISODE = {"r": np.zeros(2), "l": np.zeros(2, np.int64), "s": np.zeros(2, bool), "mask": np.ones(2, bool)}
MALFORMED_INFERS = {
    "no env_indices": {key: value for key, value in infer(0).items() if key != "env_indices"},
    "no step_ids": {key: value for key, value in infer(0).items() if key != "step_ids"},
    "no env": infer(),
    "negative index": infer(-1),
    "index over 65535": infer(65_536),
    "env named twice": infer(3, 3),
    "scalar index": infer(0, env_indices=np.int64(0)),
    "float index": infer(0, env_indices=np.zeros(1)),
    "two rows for one env": infer(0, data=observation(2)),
    "another width": infer(0, data=observation(1, width=4)),
    "another key": infer(0, data=observation(1) | {"states": {"else": np.zeros((1, 3))}}),
    "a key too many": infer(0, data=observation(1) | {"extra": {}}),
    "no text": infer(0, data={key: value for key, value in observation(1).items() if key != "text"}),
    "states no array": infer(0, data=observation(1) | {"states": {"obs": [[0.0, 0.0, 0.0]]}}),
    "states of text": infer(0, data=observation(1) | {"states": {"obs": np.full((1, 3), "x")}}),
    "one-dimensional states": infer(0, data=observation(1) | {"states": {"obs": np.zeros(3)}}),
    "float images": infer(0, data=observation(1) | {"images": {"cam": np.zeros((1, 2, 2, 3))}}),
    "NaN": infer(0, data=observation(1) | {"states": {"obs": np.full((1, 3), np.nan)}}),
    "reuse of nothing held": infer(0, data=observation(0), reuse=np.array([True])),
    "reuse no flags": infer(0, reuse=np.zeros(1)),
    "spaces of no kind": infer(0, spaces={"action": {"kind": "unheard-of"}}),
    "feedback first": feedback(0),
    "no message": {"message_type": "unheard-of"},
    "empty map": {},
}
MALFORMED_FEEDBACKS = {
    "second infer": infer(0),
    "no key rewards": feedback(0) | {"data": {"obs": observation(1)}},
    "a key too many": feedback(0, extra=1),
    "text rewards": feedback(0, rewards=np.array(["x"])),
    "too many rewards": feedback(0, rewards=np.zeros(2, np.float32)),
    "float flags": feedback(0, terminated=np.zeros(1)),
    "observation of another env count": feedback(0, obs=observation(2)),
    "another width": feedback(0, obs=observation(1, width=1)),
    "info no map": feedback(0, info=[1]),
    "info that cannot be split": feedback(0, 1, info={"task": "pick"}),
    "info with lists": feedback(0, 1, info={"task": ["pick", "place"]}),
    "episode no map": feedback(0, 1, info={"episode": np.zeros(2)}),
    "episode of text": feedback(0, 1, info={"episode": EPISODE | {"r": np.array(["a", "b"])}}),
    "episode of another length": feedback(0, 1, info={"episode": EPISODE | {"mask": np.ones(3, bool)}}),
}


class TestMalformed:
    """Lesson 2: whatever one client sends, only its own connection closes."""

    @pytest.fixture
    def bystander(self, server: Server) -> Iterator[None]:
        """An honest connection that is open meanwhile, and a new one that works after."""
        with connected(server) as held:
            held.send(infer(5))
            held.action()
            yield
            held.send(feedback(5), infer(5))
            assert held.action().env_ids.tolist() == [5]
        with connected(server) as fresh:
            fresh.send(infer(0))
            assert fresh.action()

    @pytest.mark.parametrize("message", MALFORMED_INFERS.values(), ids=MALFORMED_INFERS.keys())
    def test_infer(self, server: Server, bystander: None, message: Wire) -> None:
        with connected(server) as talk:
            talk.send(message)
            assert talk.closed() == RESYNC

    @pytest.mark.parametrize("message", MALFORMED_FEEDBACKS.values(), ids=MALFORMED_FEEDBACKS.keys())
    def test_feedback(self, server: Server, bystander: None, message: Wire) -> None:
        with connected(server) as talk:
            talk.send(infer(0, 1))
            talk.action()
            talk.send(message)
            assert talk.closed() == RESYNC

    @pytest.mark.parametrize("frame", [b"", b"\xc1", b"\x91" * 100, encode(infer(0))[:-1], "text", b"\xc0"])
    def test_frame(self, server: Server, bystander: None, frame: bytes | str) -> None:
        with connected(server) as talk:
            talk.send_raw(frame)
            assert talk.closed() == RESYNC

    def test_good_infos_are_taken(self, server: Server) -> None:
        infos: list[Wire] = [
            {},
            {"episode": EPISODE},
            {"task": "pick", "at": np.zeros((2, 3))},
            {"deep": {"a": EPISODE["r"]}},
        ]
        with connected(server) as talk:
            for info in infos:
                talk.send(infer(0, 1))
                talk.action()
                talk.send(feedback(0, 1, info=info))
            talk.send(infer(0))
            assert talk.action()


class TestReuse:
    def exchange(self, talk: Talk, *envs: int, done: bool = False) -> None:
        talk.send(infer(*envs))
        talk.action()
        talk.send(feedback(*envs, done=done))

    def test_answers_for_an_observation_it_holds(self, server: Server) -> None:
        with connected(server) as talk:
            self.exchange(talk, 0, 1)
            talk.send(infer(0, 1, data=observation(1), reuse=np.array([True, False])))
            assert talk.action().env_ids.tolist() == [0, 1]

    def test_answers_when_all_are_reused(self, server: Server) -> None:
        with connected(server) as talk:
            self.exchange(talk, 0, 1)
            talk.send(infer(1, 0, data=observation(0), reuse=np.array([True, True])))
            assert talk.action().env_ids.tolist() == [1, 0]

    def test_refuses_a_final_observation(self, server: Server) -> None:
        with connected(server) as talk:
            self.exchange(talk, 0, done=True)
            talk.send(infer(0, data=observation(0), reuse=np.array([True])))
            assert talk.closed() == RESYNC

    def test_holds_nothing_over_from_another_connection(self, server: Server) -> None:
        with connected(server) as talk:
            self.exchange(talk, 0)
        with connected(server) as talk:
            talk.send(infer(0, data=observation(0), reuse=np.array([True])))
            assert talk.closed() == RESYNC


class TestDeclaration:
    def declared(self, action: BoxSpace | DiscreteSpace, **changes: object) -> Wire:
        return infer(0, spaces=Declaration(action, env="x", num_envs=1, client=0).to_wire(), **changes)

    def box(self, *shape: int) -> BoxSpace:
        return BoxSpace(shape, np.dtype("<f4"), np.full(shape, -1, np.float32), np.ones(shape, np.float32))

    def test_agrees(self, server: Server) -> None:
        with connected(server) as talk:
            talk.send(self.declared(self.box(WIDTH)))
            assert talk.action()

    @pytest.mark.parametrize(
        ("action", "said"),
        [("box", "action_dim 3, this run has 7"), ("discrete", "action space discrete[], this run has box[7]")],
    )
    def test_rejects_another_action_space(self, server: Server, action: str, said: str) -> None:
        with connected(server) as talk:
            talk.send(self.declared(self.box(3) if action == "box" else DiscreteSpace(7)))
            assert talk.closed() == Close(1008, f"plugrl-server-reject: {said}")

    def test_rejects_another_observation(self, server: Server) -> None:
        with connected(server) as talk:
            talk.send(self.declared(self.box(WIDTH), data=observation(1, width=4)))
            assert talk.closed() == Close(1008, "plugrl-server-reject: states.obs of width 4, this run has 3")


class TestEnd:
    def test_stops_everyone_after_its_exchanges(self) -> None:
        with reference_server("--exchanges", "2") as server:
            with connected(server) as idle, connected(server) as talk:
                for _ in range(2):
                    talk.send(infer(0))
                    talk.action()
                    talk.send(feedback(0))
                assert talk.closed() == STOP
                assert idle.closed() == STOP
            assert server.ended().status == 0

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_stops_on_a_signal(self, number: signal.Signals) -> None:
        with reference_server() as server, connected(server) as talk:
            server.process.send_signal(number)
            assert talk.closed() == STOP
            assert server.ended().status == 0

    def test_does_not_wait_for_feedback_for_ever(self) -> None:
        with reference_server("--feedback-timeout", "0.2") as server, connected(server) as talk:
            talk.send(infer(0))
            talk.action()
            assert talk.closed() == FEEDBACK_TIMEOUT

    def test_logs_feedback_without_an_action(self) -> None:
        """Lesson 4, and the words of SPEC 7.6."""
        with reference_server("--exchanges", "1") as server:
            with connected(server) as talk:
                talk.send(infer(0))
                talk.action()
                talk.send(feedback(0, 9))
                assert talk.closed() == STOP
            assert "Feedback for env 9 arrived with no step state" in server.ended().output

    def test_says_which_port_is_taken(self) -> None:
        with reference_server() as server:
            second = load("reference_server")
            assert second.main(["--port", str(server.port)]) == 1


def introduces_itself(talk: Talk) -> bool:
    talk.send(infer(0))
    return isinstance(talk.receive(), Metadata)


def answer(talk: Talk) -> tuple[Metadata, Action]:
    metadata = talk.receive()
    talk.send(infer(0, 1))
    return metadata, talk.action()


def is_time_major(talk: Talk) -> bool:
    try:
        return answer(talk)[1].action.shape == (HORIZON, 2, WIDTH)
    except RemoteProtocolError:  # env_ids do not go with it
        return False


def names_its_envs(talk: Talk) -> bool:
    return answer(talk)[1].env_ids is not None


def keeps_its_horizon(talk: Talk) -> bool:
    metadata, action = answer(talk)
    return len(action.action) == metadata.action_horizon


def refuses(*messages: Wire, before: Callable[[Talk], object] = lambda talk: None) -> Callable[[Talk], bool]:
    def play(talk: Talk) -> bool:
        talk.receive()
        before(talk)
        talk.send(*messages)
        try:
            return talk.closed() == RESYNC
        except AssertionError:
            return False

    return play


def asked(talk: Talk) -> None:
    talk.send(infer(0, 1))
    talk.action()


def stops_with_the_reason(talk: Talk) -> bool:
    answer(talk)
    talk.send(feedback(0, 1))
    return talk.closed() == STOP


CASES = {
    "no-metadata": introduces_itself,
    "env-major": is_time_major,
    "no-env-ids": names_its_envs,
    "wrong-horizon": keeps_its_horizon,
    "lenient": refuses(MALFORMED_INFERS["no env_indices"]),
    "crash-on-info": refuses(MALFORMED_FEEDBACKS["info that cannot be split"], before=asked),
    "plain-stop": stops_with_the_reason,
    "lenient-reuse": refuses(MALFORMED_INFERS["reuse of nothing held"]),
}


@pytest.mark.parametrize("name", [name for name in CASES if name != "plain-stop"])
def test_keeps_its_rules(server: Server, name: str) -> None:
    with connected(server, greeted=False) as talk:
        assert CASES[name](talk)


@pytest.mark.parametrize("name", CASES)
def test_bug_breaks_its_rule(name: str) -> None:
    with reference_server("--exchanges", "1", "--bug", name) as server, connected(server, greeted=False) as talk:
        assert not CASES[name](talk)


def test_lenient_answers_a_second_infer() -> None:
    play = refuses(infer(0, 1), before=asked)
    with reference_server("--bug", "lenient") as server, connected(server, greeted=False) as talk:
        assert not play(talk)


def test_crash_on_info_ends_the_server_for_everyone() -> None:
    with reference_server("--bug", "crash-on-info") as server:
        with connected(server) as bystander, connected(server) as talk:
            asked(talk)
            talk.send(MALFORMED_FEEDBACKS["info that cannot be split"])
            assert talk.closed() == INTERNAL_ERROR
            assert bystander.closed() == INTERNAL_ERROR
        assert server.ended().status == 1


def test_every_bug_is_tested() -> None:
    assert set(CASES) == set(load("reference_server").BUGS)


@pytest.mark.parametrize("flag", ["--horizon 0", "--port 99999", "--port -1"])
def test_a_number_that_cannot_be_is_refused_by_its_flag(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        load("reference_server").main(flag.split())
    assert f"error: {flag}: expected " in capsys.readouterr().err
