"""The connection to an openpi server: its frames, its failures, and connections that break."""

import socket
import threading

import numpy as np
import pytest
from plugrl_protocol.codec import encode
from plugrl_server.policy.openpi import openpi_link
from plugrl_server.policy.openpi.openpi_link import OpenPIError, OpenPILink


@pytest.fixture
def link():
    """Makes links that are closed at the end of the test."""
    made = []

    def make(port, **options):
        made.append(
            OpenPILink("127.0.0.1", port, **{"api_key": None, "connect_timeout": 5, "answer_timeout": 5, **options})
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


REQUEST = encode({"observation/state": np.array([0.25], "f4"), "prompt": "fold"})


def test_metadata_comes_first_and_answers_follow_requests(openpi, link):
    server = openpi(metadata={"reset_pose": np.zeros(2, "f4"), "name": "pi0"})
    asking = link(server.port)
    asking.connect()
    assert asking.metadata["name"] == "pi0"
    assert asking.metadata["reset_pose"].shape == (2,)
    for _ in range(3):
        answer = asking.ask(REQUEST)
    assert answer["actions"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert answer["server_timing"] == {"infer_ms": 1.5}
    assert server.connections == 1
    assert server.seen[2]["prompt"] == "fold"
    np.testing.assert_array_equal(server.seen[2]["observation/state"], np.array([0.25], "f4"))


def test_large_messages_pass(openpi, link):
    server = openpi(lambda observation: {"actions": np.zeros((1000, 700))})
    image = np.arange(3 * 2**20, dtype=np.uint8).reshape(1024, 1024, 3)
    assert link(server.port).ask(encode({"image": image}))["actions"].shape == (1000, 700)
    np.testing.assert_array_equal(server.seen[0]["image"], image)


def test_a_traceback_of_the_server_is_shown(openpi, link):
    def fail(observation):
        raise RuntimeError(f"no key observation/image in {sorted(observation)}")

    server = openpi(fail)
    asking = link(server.port)
    with pytest.raises(
        OpenPIError, match=r"(?s)failed:\nTraceback .*RuntimeError: no key observation/image in \['obse"
    ):
        asking.ask(REQUEST)
    server.infer = lambda observation: {"actions": np.zeros((1, 1))}
    assert "actions" in asking.ask(REQUEST)


def test_a_connection_that_breaks_is_opened_again_once(openpi, link):
    fates = [ConnectionResetError(), {"actions": np.ones((1, 1))}]

    def infer(observation):
        fate = fates.pop(0)
        if isinstance(fate, Exception):
            raise fate
        return fate

    server = openpi(infer)
    asking = link(server.port)
    assert asking.ask(REQUEST)["actions"].tolist() == [[1]]
    assert server.connections == 2
    fates += [ConnectionResetError(), ConnectionResetError()]
    with pytest.raises(OpenPIError, match="did not answer: "):
        asking.ask(REQUEST)


def test_the_key_is_sent_and_a_refusal_is_told_with_the_flag(openpi, link):
    server = openpi(api_key="open sesame")
    assert "actions" in link(server.port, api_key="open sesame").ask(REQUEST)
    with pytest.raises(OpenPIError, match=r"refuses the connection: HTTP 401 \(--policy.openpi-api-key\)"):
        link(server.port).connect()


def test_a_server_that_is_not_there_is_tried_until_the_time_is_over(link, monkeypatch):
    monkeypatch.setattr(openpi_link, "PAUSE", 0.01)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(OpenPIError, match=r"no openpi server at ws://127\.0\.0\.1:\d+: .*refused"):
            link(taken.getsockname()[1], connect_timeout=0.05).connect()


def test_one_that_answers_nothing_is_given_up(link):
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(OpenPIError, match="no answer in time"):
        link(silent.getsockname()[1], connect_timeout=0.05).connect()


def test_an_answer_that_takes_too_long_is_not_waited_for(openpi, link):
    released = threading.Event()
    server = openpi(lambda observation: released.wait(5) and {"actions": np.zeros((1, 1))})
    try:
        with pytest.raises(OpenPIError, match=r"did not answer within 0.05 s \(--policy.answer-timeout\)"):
            link(server.port, answer_timeout=0.05).ask(REQUEST)
        assert server.connections == 1, "what the server is still at is not asked a second time"
    finally:
        released.set()


def test_a_frame_that_is_not_openpi_s_is_named(openpi, link):
    with pytest.raises(OpenPIError, match="sent a frame that is not openpi's"):
        link(openpi(lambda observation: b"\xc1").port).ask(REQUEST)
