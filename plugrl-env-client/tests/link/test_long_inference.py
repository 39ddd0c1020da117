"""Lesson 14: an inference takes as long as it takes, because pings are answered while the client waits for it."""

import os
import threading

import numpy as np
import pytest
from plugrl_env_client.link.address import Address
from plugrl_env_client.link.client_link import Link
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_protocol.messages import Infer
from plugrl_protocol.observation import Observation

PINGS = 15
BETWEEN = 0.02  # seconds from a pong to the next ping
PING_INTERVAL = PING_TIMEOUT = 20.0  # seconds, those of `websockets`
LONG = 45.0  # seconds: one who answers no ping is cut off after 40


@pytest.fixture
def ask():
    """Connect to a port, and ask for one action."""

    def connect_and_ask(port):
        link = Link.open(
            Address("127.0.0.1", port),
            connect_timeout=10.0,
            action_timeout=None,
            max_frame=2**20,
            api_key=None,
            interrupts=Interrupts(),
        )
        seen = Observation(images={}, states={"s": np.zeros((1, 2))}, text=[""])
        try:
            return link.infer(Infer(seen, np.arange(1), np.zeros(1, np.int64))).action
        finally:
            link.close()

    return connect_and_ask


@pytest.mark.parametrize("patience", [0.01, 1.0])
def test_every_ping_is_answered_before_a_slow_answer_comes(fake_server, ask, monkeypatch, patience):
    monkeypatch.setattr("plugrl_env_client.link.client_link._PATIENCE", patience)
    answered = []

    def script(peer):
        peer.greet()
        peer.infer()
        for _ in range(PINGS):
            answered.append(peer.socket.ping().wait(5.0))
            if not answered[-1]:
                break
            threading.Event().wait(BETWEEN)
        peer.act(np.full((1, 1, 2), 7.0))

    assert ask(fake_server(script).port).tolist() == [[[7.0, 7.0]]]
    assert answered == [True] * PINGS


@pytest.mark.skipif("PLUGRL_SLOW_TESTS" not in os.environ, reason="takes 45 s; PLUGRL_SLOW_TESTS=1 runs it")
def test_an_inference_may_outlast_the_servers_pings(fake_server, ask):
    latencies = []

    def script(peer):
        peer.greet()
        peer.infer()
        threading.Event().wait(LONG)
        latencies.append(peer.socket.latency)  # 0 until a pong has come
        peer.act(np.full((1, 1, 2), 7.0))

    server = fake_server(script, ping_interval=PING_INTERVAL, ping_timeout=PING_TIMEOUT)
    assert ask(server.port).tolist() == [[[7.0, 7.0]]]
    assert latencies[0] > 0
