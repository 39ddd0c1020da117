"""Peers for the tests of the checkers, made from the core: honest ones, whose messages a test can change."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from plugrl_protocol.closing import DONE, STOP, Close, Reaction, reaction, reject
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.conformance.calling.caller import Caller
from plugrl_protocol.conformance.calling.options import ServerOptions
from plugrl_protocol.conformance.clauses import Side
from plugrl_protocol.conformance.client_scenarios.options import ClientOptions
from plugrl_protocol.conformance.client_scenarios.session import Session
from plugrl_protocol.conformance.client_scenarios.stage import Stage
from plugrl_protocol.conformance.peer.dialing import DialError, dial
from plugrl_protocol.conformance.peer.endpoint import Closed, Endpoint, Text
from plugrl_protocol.conformance.peer.listener import Listener
from plugrl_protocol.conformance.peer.trace import Trace
from plugrl_protocol.conformance.probe_env import episode_length
from plugrl_protocol.conformance.report import Report
from plugrl_protocol.connection import DECLARE, REUSE, Connection, Role
from plugrl_protocol.errors import ProtocolError, RemoteProtocolError
from plugrl_protocol.messages import Action, Feedback, Infer, Metadata
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import Declaration
from websockets.client import ClientProtocol
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

HOST = "127.0.0.1"
Change = Callable[[str, dict[str, Any]], dict[str, Any] | bytes]


def make_client_options(**changes: Any) -> ClientOptions:
    fields: dict[str, Any] = {
        "host": HOST,
        "port": 0,
        "steps": 8,
        "horizon": 4,
        "action_dim": 3,
        "action_dtype": np.dtype(np.float64),
        "timeout": 5.0,
        "scenarios": ("watch",),
        "features": frozenset(),
        "command": None,
    }
    return ClientOptions(**(fields | changes))


def make_server_options(port: int = 1, **changes: Any) -> ServerOptions:
    fields: dict[str, Any] = {
        "host": HOST,
        "port": port,
        "state_key": "obs",
        "state_dim": 3,
        "image_key": None,
        "image_size": 8,
        "exchanges": 6,
        "timeout": 5.0,
        "until_stop": False,
        "max_exchanges": 50,
        "api_key": None,
        "space": None,
        "command": None,
    }
    return ServerOptions(**(fields | changes))


class ProbeClient:
    """A client that runs the probe environment; `change` may alter each message before it is sent."""

    def __init__(self, port: int, *, num_envs: int = 3, change: Change | None = None, steps: int | None = None) -> None:
        self.port = port
        self.change: Change = change or (lambda _, wire: wire)
        self.steps = steps
        self.compression = False
        self.declaration: Declaration | None = None
        self.time = np.zeros(num_envs, np.int64)
        self.action = np.zeros((num_envs, 1))
        self.closes: list[Close] = []
        self.exchanges = 0

    def run(self) -> Reaction | None:
        """Until the server ends it; None: it ended by itself."""
        while True:
            try:
                endpoint = dial(HOST, self.port, Trace(), timeout=5.0, compression=self.compression)
            except DialError:
                return None
            self.endpoint = endpoint
            self.begin()
            close = self.converse()
            self.closes.append(close)
            if not endpoint.ended:
                endpoint.close(close)
            endpoint.drop()
            if close == DONE:
                return None
            if reaction(close) is not Reaction.RECONNECT:
                return reaction(close)

    def begin(self) -> None:
        """Everything that one connection knows."""
        self.chunks: dict[int, list[np.ndarray]] = {env: [] for env in range(len(self.time))}
        self.rewards = np.zeros(len(self.time), np.float32)
        self.step_ids = np.zeros(len(self.time), np.int64)
        self.reusable: set[int] = set()
        self.first = True

    def converse(self) -> Close:
        message = self.receive()
        if isinstance(message, Close):
            return message
        self.features = message["data"].get("features", [])
        while self.steps is None or self.exchanges < self.steps:
            close = self.exchange()
            if close is not None:
                return close
        return DONE

    def receive(self) -> Any:
        received = self.endpoint.receive(5.0)
        if isinstance(received, Text):
            return Close(1003, "text")
        if isinstance(received, Closed):
            return received.close
        return decode(received)

    def send(self, kind: str, wire: dict[str, Any]) -> None:
        changed = self.change(kind, wire)
        self.endpoint.send(changed if isinstance(changed, bytes) else encode(changed))

    def exchange(self) -> Close | None:
        asked = [env for env, chunk in self.chunks.items() if not chunk]
        self.send("infer", self.infer(asked))
        message = self.receive()
        if isinstance(message, Close):
            return message
        action = message["data"]["action"]
        for row, env in enumerate(asked):
            self.chunks[env] = list(action[:, row])
        finished: list[int] = []
        while not finished:
            self.action = np.stack([np.atleast_1d(chunk.pop(0)).ravel() for chunk in self.chunks.values()])
            self.action = self.action.astype(np.float64)
            self.time += 1
            self.rewards += 1
            done = self.done()
            finished = [env for env, chunk in self.chunks.items() if done[env] or not chunk]
        self.send("feedback", self.feedback(finished))
        self.reported(finished)
        self.exchanges += 1
        return None

    def done(self) -> np.ndarray:
        return self.time >= [episode_length(env) for env in range(len(self.time))]

    def observe(self, envs: list[int]) -> Observation:
        states = {"t": self.time[envs, None].astype(np.float64), "a": self.action[envs]}
        return Observation({}, states, ["probe"] * len(envs))

    def infer(self, asked: list[int]) -> dict[str, Any]:
        reuse = None
        sent = asked
        if REUSE in self.features:
            reuse = np.array([env in self.reusable for env in asked])
            sent = [env for env in asked if env not in self.reusable]
        spaces = self.declaration if self.first and DECLARE in self.features else None
        self.first = False
        return Infer(self.observe(sent), np.array(asked), self.step_ids[asked], reuse, spaces).to_wire()

    def feedback(self, finished: list[int]) -> dict[str, Any]:
        done = self.done()[finished]
        info = {"episode": {"r": self.time[finished].astype(float), "mask": done}} if done.any() else {}
        return Feedback(
            np.array(finished),
            self.step_ids[finished],
            self.observe(finished),
            self.rewards[finished],
            done,
            np.zeros(len(finished), bool),
            info,
        ).to_wire()

    def reported(self, finished: list[int]) -> None:
        for env, done in zip(finished, self.done()[finished], strict=True):
            self.chunks[env] = []
            self.rewards[env] = 0
            self.step_ids[env] = 0 if done else self.step_ids[env] + 1
            (self.reusable.discard if done else self.reusable.add)(env)
            if done:
                self.time[env] = 0


class HonestServer:
    """A server over the core; `change` may alter each message before it is sent."""

    horizon, width = 4, 2

    def __init__(self, *, change: Change | None = None, stop_after: int | None = None, key: str | None = None) -> None:
        self.change: Change = change or (lambda _, wire: wire)
        self.stop_after = stop_after
        self.key = key
        self.features = [REUSE, DECLARE]
        self.metadata: dict[str, Any] = {"action_horizon": self.horizon, "action_dim": self.width}
        self.judge: Callable[[RemoteProtocolError], Close | None] = lambda error: error.close
        self.stop_close = STOP
        self.exchanges = 0
        self.over = False
        self.extensions: list[Any] | None = None
        self._socket = socket.create_server((HOST, 0), backlog=64)
        self.port: int = self._socket.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self.over = True
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, self.port), 1.0).close()
        for thread in self._threads:
            thread.join(5.0)
        self._socket.close()

    def stop_listening(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self.over:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        endpoint = Endpoint(
            sock, ServerProtocol(max_size=2**28, extensions=self.extensions), Trace(), us="server", peer="client"
        )
        with contextlib.suppress(OSError):
            if self._upgrade(endpoint):
                self._converse(endpoint)
        endpoint.drop()

    def _upgrade(self, endpoint: Endpoint) -> bool:
        while not endpoint.handshake and not endpoint.ended and not self.over:
            endpoint.pump(0.1)
        if not endpoint.handshake:
            return False
        request = endpoint.handshake.popleft()
        wrong = self.key is not None and request.headers.get("Authorization") != f"Api-Key {self.key}"
        plain = request.path in ("/healthz", "/readyz")
        protocol = endpoint.protocol
        answer = protocol.reject(200 if plain else 401, "") if plain or wrong else protocol.accept(request)
        protocol.send_response(answer)
        endpoint.flush()
        return not (plain or wrong)

    def send(self, endpoint: Endpoint, kind: str, wire: dict[str, Any]) -> None:
        changed = self.change(kind, wire)
        endpoint.send(changed if isinstance(changed, bytes) else encode(changed))

    def _converse(self, endpoint: Endpoint) -> None:
        now = time.monotonic
        connection = Connection(Role.SERVER, now=now())
        metadata = Metadata(self.metadata | {"features": self.features})
        connection.send(metadata, now())
        self.send(endpoint, "metadata", metadata.to_wire())
        while True:
            received = endpoint.receive(0.02)
            if isinstance(received, Closed):
                return
            close = self.stop_close if self.over else None
            if received is not None and close is None:
                close = self._take(endpoint, connection, received)
            if close is not None:
                endpoint.close(close)
                endpoint.finish()
                return

    def _take(self, endpoint: Endpoint, connection: Connection, received: Any) -> Close | None:
        try:
            if isinstance(received, Text):
                connection.receive_text(0.0)
            message = connection.receive(received, 0.0)
        except RemoteProtocolError as error:
            return self.judge(error)
        if isinstance(message, Infer):
            return self._answer(endpoint, connection, message)
        self.exchanges += 1
        self.over = self.over or self.exchanges == self.stop_after
        return self.stop_close if self.over else None

    def _answer(self, endpoint: Endpoint, connection: Connection, infer: Infer) -> Close | None:
        if any(not np.isfinite(state).all() for state in infer.observation.states.values()):
            return self.judge(RemoteProtocolError("5.2 observation/finite", "NaN"))
        if infer.spaces is not None and infer.spaces.action.shape != (self.width,):
            return reject(f"action_dim {infer.spaces.action.shape[0]}, this run has {self.width}")
        action = np.zeros((self.horizon, len(infer.env_indices), self.width), np.float32)
        answer = Action(action, infer.env_indices)
        connection.send(answer, 0.0)
        self.send(endpoint, "action", answer.to_wire())
        return None


class Mouthpiece:
    """In place of an endpoint: what the peer says is set, what is sent to it is dropped."""

    pongs = 1

    def __init__(self) -> None:
        self.says: Any = None

    def receive(self, timeout: float) -> Any:
        return self.says

    def send(self, frame: bytes) -> None:
        """Nobody listens."""

    def ping(self) -> None:
        """Nobody listens."""


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70_000),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.sampled_from([{}, [], [0], ["a"], {"x": {}}]),
    st.builds(
        np.zeros,
        st.lists(st.integers(0, 3), max_size=3),
        st.sampled_from(["i8", "u1", "f4", "f8", "?", "U2", ">f8", "u8"]),
    ),
    st.just(np.full((2, 1), np.nan)),
    st.just(np.float32(3)),
)


@st.composite
def damaged(draw: Callable[..., Any], wire: dict[str, Any]) -> bytes:
    """A message with junk somewhere in it, or with some of its bytes lost."""

    def damage(value: Any) -> Any:
        if not isinstance(value, dict) or not value or draw(st.booleans()):
            return draw(JUNK)
        key = draw(st.sampled_from(sorted(value)))
        rest = {name: item for name, item in value.items() if name != key}
        return rest if draw(st.integers(0, 5)) == 0 else rest | {key: damage(value[key])}

    try:
        frame = encode(damage(wire))
    except ProtocolError:  # junk that may not travel: NaN in a map key, say
        frame = encode(wire)
    cut = draw(st.integers(0, len(frame)))
    return frame[:cut] + draw(st.binary(max_size=2)) + frame[cut:] if draw(st.integers(0, 3)) == 0 else frame


@pytest.fixture(scope="session")
def mouthpiece() -> type[Mouthpiece]:
    return Mouthpiece


@pytest.fixture(scope="session")
def damage() -> Callable[..., st.SearchStrategy[bytes]]:
    return damaged


@pytest.fixture
def client_options() -> Callable[..., ClientOptions]:
    return make_client_options


@pytest.fixture
def server_options() -> Callable[..., ServerOptions]:
    return make_server_options


@pytest.fixture
def report() -> Report:
    return Report("checker", Side.CLIENT)


@pytest.fixture
def probe_client() -> type[ProbeClient]:
    return ProbeClient


@pytest.fixture
def ends() -> Iterator[Callable[[], tuple[Endpoint, Endpoint]]]:
    """Two ends of a connection that has been upgraded: ours, the server's, and the client's."""
    opened: list[Endpoint] = []

    def connect() -> tuple[Endpoint, Endpoint]:
        with socket.create_server((HOST, 0)) as listener:
            theirs = socket.create_connection(listener.getsockname())
            ours, _ = listener.accept()
        uri = parse_uri("ws://localhost/")
        server = ServerProtocol(state=State.OPEN, max_size=2**22)
        client = ClientProtocol(uri, state=State.OPEN, max_size=2**22)
        opened.append(Endpoint(ours, server, Trace(), us="checker", peer="client"))
        opened.append(Endpoint(theirs, client, Trace(), us="client", peer="checker"))
        return opened[-2], opened[-1]

    yield connect
    for endpoint in opened:
        endpoint.drop()


@pytest.fixture
def session(ends: Any, report: Report) -> Callable[..., tuple[Session, Endpoint]]:
    """A session with a client, and the client's end; the metadata has been sent and read."""

    def open_session(**changes: Any) -> tuple[Session, Endpoint]:
        server, client = ends()
        fields: dict[str, Any] = {"features": frozenset({REUSE, DECLARE}), "timeout": 0.2}
        opened = Session(server, report, **(fields | changes))
        opened.greet({"features": [REUSE]})
        client.receive(1.0)
        return opened, client

    return open_session


@pytest.fixture
def play(report: Report, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Report, Any]]:
    """Plays scenarios against a client in a thread; returns the report and what the client's `run` returned."""
    monkeypatch.setattr("plugrl_protocol.conformance.client_scenarios.stage._LINGER_SECONDS", 0.15)

    def run(scenario: Callable[[Stage], None], make: Callable[[int], Any] = ProbeClient, **changes: Any) -> Any:
        options = make_client_options(**({"scenarios": ("basic",)} | changes))
        listener = Listener(options.host, options.port)
        outcome: list[Any] = []
        client = make(listener.port)
        thread = threading.Thread(target=lambda: outcome.append(client.run()), daemon=True)
        thread.start()
        try:
            Stage(options, report, listener).play("scene", scenario)
        finally:
            listener.close()
            thread.join(5.0)
        return report, (outcome or [None])[0]

    return run


@pytest.fixture
def server() -> Iterator[Callable[..., HonestServer]]:
    started: list[HonestServer] = []

    def start(**changes: Any) -> HonestServer:
        started.append(HonestServer(**changes))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def caller() -> Iterator[Callable[..., Caller]]:
    opened: list[Caller] = []

    def make(server: HonestServer, **changes: Any) -> Caller:
        opened.append(Caller(make_server_options(server.port, **changes), Report("checker", Side.SERVER)))
        return opened[-1]

    yield make
    for each in opened:
        each.hang_up()
