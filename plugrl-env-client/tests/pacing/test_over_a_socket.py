"""Fill-ins over a real connection: the answer that the client did not wait for is not lost."""

import threading
import time

import numpy as np
from plugrl_env_client.envs.dummy_v1 import DummyConfig, DummyEnv
from plugrl_env_client.groups.group import Group
from plugrl_env_client.groups.share import whole
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.observers import RolloutObserver
from plugrl_env_client.options import ClientOptions, Run, RunnerOptions
from plugrl_env_client.rollout import Outcome


class Witness(RolloutObserver):
    def __init__(self):
        self.actions = []
        self.filled_in = threading.Event()

    def stepped(self, actions, step, resetting):
        self.actions.append(actions[0].tolist())
        if len(self.actions) >= 5:
            self.filled_in.set()


def test_a_stalled_server_is_bridged_and_its_answer_still_used(fake_server):
    witness = Witness()

    def chunk(value):
        return np.full((2, 1, 1), value, np.float32)

    def script(peer):
        peer.greet()
        peer.infer()
        peer.act(chunk(1.0))
        peer.feedback()
        peer.infer()
        assert witness.filled_in.wait(10)  # two steps of the first chunk, and three more
        peer.act(chunk(2.0))
        peer.feedback()
        peer.infer()
        peer.act(chunk(3.0))
        peer.feedback()
        peer.stop()

    server = fake_server(script)
    options = ClientOptions(
        server_port=server.port, max_reconnects=0, runner=RunnerOptions(fps=1000.0, on_stale="hold")
    )
    run = Run("dummy-v1", DummyConfig(), options, 0, 0)
    finished = Group(run, whole(options), Interrupts(), lambda env: [witness]).run(lambda: None)
    assert finished.outcome is Outcome.SERVER_STOPPED
    values = [action[0] for action in witness.actions]
    sums = [message["data"]["rewards"].item() for message in server.peers[0].feedbacks]
    first = sums[0]  # 1 where connecting took longer than the deadline, else 2
    filled = values.index(2.0) - first
    assert filled >= 3
    assert sums[1] >= filled + 1
    assert len(values) == finished.snapshot.steps
    assert sum(sums) <= len(values), "more steps may be bridged until the server's stop is heard"
    assert finished.snapshot.pacing.fill_ins >= filled
    assert set(values) == {1.0, 2.0, 3.0}


def test_an_env_that_is_stopped_takes_no_step_meanwhile(fake_server, monkeypatch):
    held = threading.Event()
    monkeypatch.setattr(DummyEnv, "hold", lambda env: held.set())

    def script(peer):
        peer.greet()
        peer.serve(lambda infer: np.ones((2, 1, 1), np.float32), exchanges=1)
        peer.infer()
        assert held.wait(10)
        peer.act(np.ones((2, 1, 1), np.float32))
        peer.feedback()
        peer.stop()

    server = fake_server(script)
    options = ClientOptions(server_port=server.port, max_reconnects=0, runner=RunnerOptions(fps=20.0))
    finished = Group(Run("dummy-v1", DummyConfig(), options, 0, 0), whole(options), Interrupts()).run(lambda: None)
    counts = finished.snapshot.pacing
    assert (counts.stops, counts.fill_ins, counts.late_answers) == (1, 0, 1)
    sums = [message["data"]["rewards"].item() for message in server.peers[0].feedbacks]
    assert sum(sums) == finished.snapshot.steps == counts.steps
    assert len(sums) == counts.answers == 2


def test_the_time_that_an_env_states_is_the_one_that_counts(fake_server, monkeypatch):
    monkeypatch.setattr(DummyEnv, "captured_at", time.monotonic() - 1_000.0, raising=False)

    def script(peer):
        peer.greet()
        peer.serve(lambda infer: np.ones((1, 1, 1), np.float32), exchanges=3)
        peer.stop()

    options = ClientOptions(
        server_port=fake_server(script).port,
        max_reconnects=0,
        runner=RunnerOptions(fps=1000.0, action_deadline=5_000.0),
    )
    finished = Group(Run("dummy-v1", DummyConfig(), options, 0, 0), whole(options), Interrupts()).run(lambda: None)
    assert finished.snapshot.as_json()["pacing"]["observation_age"]["p50"] > 900.0
