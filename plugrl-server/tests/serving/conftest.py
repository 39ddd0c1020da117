"""A server in a thread, a client that says exactly what it is told to, and algorithms that remember what they got."""

import asyncio
import copy
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.connection import Connection, Role, Timeouts
from plugrl_protocol.messages import Metadata
from plugrl_server.algorithm.base_algorithm import BaseAlgorithm
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.serving.connection.session import Session
from plugrl_server.serving.scheduler import Scheduler
from plugrl_server.serving.server import ServingOptions, TrainingServer
from plugrl_server.serving.worker import attempt
from plugrl_server.training.accounting import Accounting
from plugrl_server.training.trainer import Trainer
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

HORIZON = 2
ACTION_DIM = 3


class FakePolicy:
    """Reads the state `obs` unless told otherwise."""

    action_horizon = HORIZON
    action_dim = ACTION_DIM

    def __init__(self, state_keys=("obs",), image_keys=(), action_space=None):
        self.state_keys = state_keys
        self.image_keys = image_keys
        self.config = SimpleNamespace(action_space=action_space)

    def check_observation(self, obs):
        return None


class FakeAlgorithm(BaseAlgorithm):
    """Answers every env with its own ticket number and stores every row it is given.

    Its runtime state holds the ticket and the first number it saw of the env.

    `fill` frames make it want to learn; `hooks` replace single calls (`infer`, `learn_impl`, `should_save`, ...).
    """

    def __init__(self, *, policy=None, fill=None, steps=None, on_policy=True, **hooks):
        super().__init__(config=SimpleNamespace(global_steps=steps), policy=policy or FakePolicy())
        self.on_policy = on_policy
        self.fill, self.steps = fill, steps
        self.stored, self.discarded, self.batches = [], [], []
        self.buffered = self.tickets = self.learned = 0
        self.weights = np.zeros(2)
        for name, hook in hooks.items():
            setattr(self, name, hook)

    def infer(self, obs):
        n = len(obs["text"])
        self.batches.append(n)
        tickets = np.arange(self.tickets, self.tickets + n)
        self.tickets += n
        action = np.broadcast_to(tickets[:, None, None], (n, HORIZON, ACTION_DIM)) + np.arange(HORIZON)[:, None] / 10
        saw = next(iter(obs["states"].values()), np.zeros((n, 1)))[:, :1]
        return action.astype(np.float32), {"ticket": tickets[:, None], "saw": saw, "none": None}

    def derive_train_state(self, runtime_state):
        return (runtime_state["ticket"] * 10,)

    def feedback(self, **row):
        self.stored.append(copy.deepcopy(row))
        self.buffered += 1
        return (len(self.stored), "stored"), self.global_step + 1, {}

    def discard_feedback(self, **row):
        self.discarded.append(row)
        super().discard_feedback(**row)

    def learn_impl(self):
        self.learned += 1
        self.weights += 1
        self.buffered = 0
        return self.global_step, {"losses/fake": 1.0}

    def should_learn(self):
        return self.fill is not None and self.buffered >= self.fill

    def should_save(self):
        return False

    def should_stop(self):
        return self.steps is not None and self.global_step >= self.steps

    def create_checkpoint(self):
        return Checkpoint(step=self.global_step, model={"weights": self.weights}, optimizer=None, meta={})

    def load_checkpoint(self, checkpoint):
        self.weights = checkpoint.model["weights"]


class FakeSource:
    """Has a trainer, or builds it by `make(declaration, observation)` on the first infer."""

    def __init__(self, algorithm=None, make=None, disagreement=None):
        self.saved = []
        self.trainer = None if algorithm is None else self.wrap(algorithm)
        self.make, self.complaint = make, disagreement

    def wrap(self, algorithm):
        def save(checkpoint):
            self.saved.append(copy.deepcopy(checkpoint))
            return f"checkpoints/{checkpoint.step}"

        return Trainer(algorithm, save=save)

    def build(self, declaration, observation):
        self.trainer = self.wrap(self.make(declaration, observation))
        return self.trainer

    def disagreement(self, declaration, observation):
        return None if self.complaint is None else self.complaint(declaration, observation)

    def describe(self):
        return {} if self.trainer is None else {"algorithm": "FakeAlgorithm", "action_horizon": HORIZON}


class FakeEvents:
    """Notes every event."""

    def __init__(self):
        self.seen = []

    def __getattr__(self, name):
        return lambda *values: self.seen.append((name, *values))

    def named(self, name):
        return [event[1:] for event in self.seen if event[0] == name]


class Running:
    """A server that runs in a thread of its own."""

    def __init__(self, source, **options):
        self.source, self.events = source, FakeEvents()
        self.server = TrainingServer(source, ServingOptions(port=0, **options), self.events)
        self.outcome = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.until(lambda: self.events.named("listening") or self.outcome)
        self.port = self.events.named("listening")[0][1] if self.events.named("listening") else None

    def _run(self):
        try:
            self.outcome = asyncio.run(self.server.run())
        except BaseException as error:
            self.outcome = error

    @property
    def algorithm(self):
        return self.source.trainer.algorithm

    @property
    def rows(self):
        return self.server.accounting.total

    def until(self, condition, seconds=10.0):
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit, "waited in vain"
            time.sleep(0.002)

    def stop(self, reason="interrupted", **options):
        self.server.request_stop(reason, **options)
        return self.result()

    def result(self, seconds=10.0):
        self.thread.join(seconds)
        assert not self.thread.is_alive(), "the server did not end"
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Client:
    """One WebSocket connection; messages are plain maps, so that they can be wrong."""

    def __init__(self, port, key="obs", width=3, **options):
        self.key, self.width = key, width
        options = {"compression": None, "max_size": None, "open_timeout": 5, "close_timeout": 5} | options
        self._open = ExitStack()
        self.socket = self._open.enter_context(connect(f"ws://127.0.0.1:{port}", **options))
        self.metadata = self.receive()

    def observation(self, values):
        states = np.zeros((len(values), self.width))
        states[:, :1] = np.asarray(values, float)[:, None]
        return {"images": {}, "states": {self.key: states}, "text": [""] * len(values)}

    def infer(self, envs=(0,), values=None, **changes):
        message = {
            "message_type": "infer",
            "data": self.observation(values or [0.0] * len(envs)),
            "env_indices": np.array(envs, np.int64),
            "step_ids": np.zeros(len(envs), np.int64),
        }
        return message | changes

    def feedback(self, envs=(0,), values=None, rewards=None, terminated=None, info=None, **changes):
        m = len(envs)
        message = {
            "message_type": "feedback",
            "env_indices": np.array(envs, np.int64),
            "step_ids": np.zeros(m, np.int64),
            "data": {
                "obs": self.observation(values or [0.5] * m),
                "rewards": np.array([1.0] * m if rewards is None else rewards, np.float32),
                "terminated": np.array([False] * m if terminated is None else terminated),
                "truncated": np.zeros(m, np.bool_),
                "info": info or {},
            },
        }
        return message | changes

    def send(self, message):
        self.socket.send(message if isinstance(message, bytes | str) else encode(message))

    def receive(self, timeout=5):
        return decode(self.socket.recv(timeout))

    def ask(self, envs=(0,), **options):
        self.send(self.infer(envs, **options))
        return self.receive()["data"]

    def exchange(self, envs=(0,), values=None, next_values=None, **options):
        action = self.ask(envs, values=values)
        self.send(self.feedback(envs, values=next_values, **options))
        return action

    def ending(self, timeout=5):
        """The server's close, as "<code> <reason>"."""
        try:
            while True:
                self.socket.recv(timeout)
        except ConnectionClosed as closed:
            return f"{closed.rcvd.code} {closed.rcvd.reason}" if closed.rcvd else "1006"

    def close(self):
        self._open.close()

    def drop(self):
        self.socket.socket.close()


class SimAlarm:
    """A timer of the simulated clock."""

    def __init__(self, due, callback):
        self.due, self.callback = due, callback

    def when(self):
        return self.due

    def cancel(self):
        self.callback = None


class SimRuntime:
    """A scheduler's runtime without threads: the test decides when the clock moves and when jobs are done."""

    def __init__(self):
        self.now = 100.0
        self.soon, self.alarms, self.jobs = [], [], []

    def time(self):
        return self.now

    def call_soon(self, callback):
        self.soon.append(callback)

    def call_at(self, when, callback):
        self.alarms.append(SimAlarm(when, callback))
        return self.alarms[-1]

    def work(self, lane, job, done):
        self.jobs.append((lane, job, done))

    def run_soon(self):
        while self.soon:
            self.soon.pop(0)()

    def do_job(self, index=0):
        lane, job, done = self.jobs.pop(index)
        done(attempt(job))
        return lane

    def settle(self, rounds=1000):
        """Do all there is to do without the clock moving."""
        for _ in range(rounds):
            if self.soon:
                self.run_soon()
            elif self.jobs:
                self.do_job()
            else:
                return
        raise AssertionError("the run never settles")

    def advance(self, seconds):
        """Let time pass, alarm by alarm."""
        end = self.now + seconds
        while due := [alarm for alarm in self.alarms if alarm.callback and alarm.due <= end]:
            alarm = min(due, key=lambda alarm: alarm.due)
            self.alarms.remove(alarm)
            self.now = max(self.now, alarm.due)
            alarm.callback()
        self.now = end


class SimClient:
    """A client whose WebSocket is a list: what the server sent it, and how it ended."""

    observation, infer, feedback = Client.observation, Client.infer, Client.feedback

    def __init__(self, simulation, name, key="obs", width=3, **timeouts):
        self.key, self.width = key, width
        self.received, self.pings, self.closed, self.aborted = [], 0, None, False
        connection = Connection(Role.SERVER, now=simulation.runtime.now, timeouts=Timeouts(**timeouts))
        scheduler, count = simulation.scheduler, simulation.accounting.open(name)
        self.session = Session(name, self, scheduler, simulation.runtime, connection, count, Metadata({}))
        self.session.opened()

    # What the session does with its link.

    def send(self, data):
        self.received.append(decode(data))

    def ping(self):
        self.pings += 1

    def close(self, code, reason):
        self.closed = f"{code} {reason}"

    def abort(self):
        self.aborted = True

    # What the test does as the client.

    def say(self, message):
        self.session.received(message if isinstance(message, bytes) else encode(message))

    @property
    def actions(self):
        return [message["data"] for message in self.received if message["message_type"] == "action"]

    def leave(self, handshake=True):
        self.session.closed(handshake=handshake, reason="left")


class Simulation:
    """A scheduler on a simulated runtime."""

    def __init__(self, source, **options):
        self.source = source if isinstance(source, FakeSource) else FakeSource(source)
        self.runtime, self.events, self.accounting = SimRuntime(), FakeEvents(), Accounting()
        self.changes = 0
        self.scheduler = Scheduler(
            self.runtime, self.source, ServingOptions(**options), self.events, self.accounting, self._change
        )
        self.scheduler.start()
        self.clients = []

    def _change(self):
        self.changes += 1

    @property
    def algorithm(self):
        return self.source.trainer.algorithm

    def client(self, **options):
        self.clients.append(SimClient(self, f"client {len(self.clients)}", **options))
        return self.clients[-1]

    def exchange(self, client, envs=(0,), values=None, next_values=None, **feedback):
        """One whole exchange, with nothing else going on."""
        client.say(client.infer(envs, values))
        self.runtime.settle()
        client.say(client.feedback(envs, next_values, **feedback))
        self.runtime.settle()


@pytest.fixture(scope="session")
def simulate():
    """`simulate(algorithm or source, **options)` makes a run without sockets, threads or time."""
    return Simulation


@pytest.fixture
def serve():
    """`serve(algorithm or source, **options)` starts a server that ends with the test."""
    running = []

    def start(source, **options):
        source = source if isinstance(source, FakeSource) else FakeSource(source)
        running.append(Running(source, **options))
        return running[-1]

    yield start
    for each in running:
        each.server.stop_now()
        each.thread.join(5)


@pytest.fixture
def join():
    """`join(running, ...)` connects a client that is closed with the test."""
    clients = []

    def start(running, **options):
        clients.append(Client(running.port, **options))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


@pytest.fixture(scope="session")
def fakes():
    """The fake classes."""
    return SimpleNamespace(
        policy=FakePolicy, algorithm=FakeAlgorithm, source=FakeSource, events=FakeEvents, client=Client, running=Running
    )
