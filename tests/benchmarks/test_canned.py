import socket

import canned
import floors
import numpy as np
import payloads
import pytest
import websocket_peers
from payloads import SHAPES
from plugrl_protocol.codec import decode


@pytest.mark.parametrize("client_type", [canned.MinimalClient, canned.RawClient, canned.CoreClient])
def test_the_least_clients_run_their_exchanges_against_the_canned_server(client_type):
    shape, count = SHAPES["n8"], 20
    with canned.start_server(shape) as server:
        port = int(server.wait_for(floors.READY, 30)[1])
        env = canned.CannedEnv(shape, count, warm_up=5)
        client = client_type(port, shape)
        client.run(env, 5 + count + 1)
        client.close()
    assert (np.diff(env.stamps) > 0).all()
    assert env.cpu_us > 0


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_frame_is_read_by_the_raw_client(size):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(canned.frame(canned.BINARY, bytes(size)))
        client = object.__new__(websocket_peers.RawClient)
        client._reader = floors.Reader(theirs)
        assert bytes(client.receive()) == bytes(size)


def test_the_env_shows_the_shapes_observation_and_takes_its_actions():
    shape = SHAPES["image"]
    env = canned.CannedEnv(shape, 1, warm_up=0)
    step = env.step(np.zeros((1, payloads.ACTION_DIM)))
    assert step.observation.images.keys() == set(payloads.CAMERAS)
    assert len(env.reset(None)) == shape.envs
    assert env.action_space.shape == (payloads.ACTION_DIM,)


def test_the_canned_messages_are_the_protocols():
    assert decode(canned.encode(payloads.metadata()))["message_type"] == "metadata"
