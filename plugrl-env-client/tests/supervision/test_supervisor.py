"""Several processes: shares, a death in the family, and the end of all (field lesson 10)."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from plugrl_env_client.cli import main

PROC = Path("/proc")
COMMAND = [sys.executable, "-m", "plugrl_env_client.cli"]


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def dummy(server, *flags):
    return ["dummy-v1", "--server-port", str(server.port), "--num-procs", "2", "--num-envs", "5", *flags]


def test_each_process_runs_its_share(fake_server, actions, capsys, tmp_path):
    def script(peer):
        peer.greet()
        peer.serve(actions(4, 7))

    server = fake_server(script)
    assert main(dummy(server, "--num-steps", "40", "--exp-name", "two")) == 0
    assert sorted(len(peer.infers[0]["env_indices"]) for peer in server.peers) == [2, 3]
    folder = tmp_path / "plugrl-client" / "two"
    summary = json.loads((folder / "summary.json").read_text())
    server.wait()
    assert summary["feedback_rows"] == server.feedback_rows
    assert summary["steps"] >= 40
    assert len(summary["connections"]) == 2
    assert {path.name for path in folder.iterdir()} == {"config.json", "summary.json", "0.log", "1.log"}
    assert capsys.readouterr().out.startswith("ran what was asked for: ")


def children_of(pid):
    """The spawned children of a process, in the order of their start."""
    found = []
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and "spawn_main" in (folder / "cmdline").read_text():
                found.append(int(folder.name))
    return sorted(found)


@pytest.fixture
def running(fake_server, actions):
    """A client of two processes that would run for ever, and the pids of its children."""
    both = threading.Barrier(3)

    def script(peer):
        peer.greet()
        peer.serve(actions(4, 7), exchanges=2)
        both.wait(30)
        peer.serve(actions(4, 7))

    server = fake_server(script)
    parent = subprocess.Popen([*COMMAND, *dummy(server)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    both.wait(30)
    yield parent, children_of(parent.pid), server
    parent.kill()
    parent.communicate()


@pytest.mark.skipif(not PROC.is_dir(), reason="reads /proc")
def test_a_dead_child_is_noticed_at_once_named_and_takes_the_others_with_it(running):
    parent, children, _ = running
    assert len(children) == 2
    began = time.monotonic()
    os.kill(children[0], signal.SIGKILL)
    out, err = parent.communicate(timeout=20)
    assert time.monotonic() - began < 8
    assert parent.returncode == 1
    assert "was ended by SIGKILL" in err
    assert "client process 0 (envs 0 to 2)" in err or "client process 1 (envs 3 to 4)" in err
    assert children_of(parent.pid) == []
    assert out.startswith("failed: ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_parent_ends_the_children_cleanly(running, number):
    parent, _, server = running
    parent.send_signal(number)
    out, err = parent.communicate(timeout=20)
    assert parent.returncode == 0, err
    assert out.startswith("interrupted: ")
    server.wait()
    assert [peer.closed_with[0] for peer in server.peers] == [1000, 1000]


def test_a_childs_own_failure_is_told_in_its_words(fake_server, capsys):
    server = fake_server(lambda peer: peer.close(1008, "plugrl-server-reject: not you"))
    assert main(dummy(server)) == 1
    error = capsys.readouterr().err
    assert "): ws://127.0.0.1:" in error
    assert "plugrl-server-reject: not you" in error


def test_envs_that_cannot_be_made_are_told_too(fake_server, capsys):
    server = fake_server(lambda peer: None)
    assert main(["classic-v1", "--env.name", "Nope-v1", *dummy(server)[1:]]) == 1
    assert "--env.name Nope-v1" in capsys.readouterr().err
