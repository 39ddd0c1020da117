"""The viewer of a run: over HTTP while the run goes on."""

import dataclasses
import json
import socket
import threading
import urllib.request

import numpy as np
import pytest
from plugrl_env_client.cli import main
from plugrl_env_client.client import run_client
from plugrl_env_client.envs.dummy_v1 import DummyConfig
from plugrl_env_client.groups.share import Share
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.options import ClientOptions, OptionError, Run
from plugrl_env_client.viewer.page_server import ViewerError
from plugrl_env_client.viewer.viewer import Viewer


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read()


@pytest.mark.parametrize("groups", [1, 2])
def test_a_run_can_be_watched(fake_server, groups):
    """The server asks for the page between its actions, while the client waits for them."""
    port = free_port()
    turns = threading.Barrier(groups)
    pages = []

    def script(peer):
        peer.greet()
        for exchange in range(3):
            infer = peer.infer()
            if exchange == 2:
                turns.wait(10)
                pages.append((json.loads(get(port, "/state.json")), get(port, "/images/6/cam.png")))
                turns.wait(10)
            peer.act(np.zeros((2, len(infer["env_indices"]), 1), np.float32))
            peer.feedback()
        peer.stop()

    server = fake_server(script)
    # process 1 of two, which runs the envs from 5 on
    options = ClientOptions(server_port=server.port, num_envs=9, num_procs=2, num_groups=groups, viewer=port - 1)
    run = Run("dummy-v1", DummyConfig(images=("cam",), image_size=8), options, 0, 0)
    share = Share(1, 5, 4, None, None)
    finished = run_client(run, share, interrupts=Interrupts(), show=lambda snapshot: None, interval=1e9)
    assert finished.error is None
    told, picture = pages[0]
    assert told["title"] == "dummy-v1: envs 5 to 8"
    assert [env["env"] for env in told["envs"]] == [5, 6, 7, 8]
    assert [env["return"] for env in told["envs"]] == [4.0] * 4
    assert (told["steps"], told["running"]) == (16, True)
    assert picture.startswith(b"\x89PNG")
    with pytest.raises(OSError, match="refused"):
        get(port, "/")


def test_a_port_in_use_is_a_mistake_of_the_command(capsys, monkeypatch):
    monkeypatch.setattr("plugrl_env_client.cli.set_up_logs", lambda *args, **kwargs: None)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["dummy-v1", "--viewer", str(port), "--server-port", "1", "--quiet"]) == 2
    assert f"--viewer: cannot listen on port {port}: another program listens there" in capsys.readouterr().err


def test_a_port_for_each_process():
    options = ClientOptions(num_envs=4, num_procs=4, viewer=65_533)
    with pytest.raises(OptionError, match="--viewer 65533: expected at least 1 and at most 65532"):
        options.check()
    dataclasses.replace(options, viewer=65_532).check()


def test_without_observers_it_does_not_answer():
    viewer = Viewer("x", 0)
    assert viewer.url.startswith("http://127.0.0.1:")
    with pytest.raises(ViewerError):
        Viewer("y", int(viewer.url.rstrip("/").rpartition(":")[2]))
    viewer.close()
