"""Signals to the parent, and deaths in the family: real processes, which must all be gone in the end."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from plugrl_env_client.cli import main
from plugrl_env_client.supervision import supervisor

COMMAND = [sys.executable, "-m", "plugrl_env_client.cli"]
FLAGS = "dummy-v1 --num-procs 2 --num-envs 5 --exp-name run --server-port"


def children_of(pid):
    """The spawned children of a process, in the order of their start."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and "spawn_main" in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except OSError:
            continue
    return sorted(found)


def served(fake_server, actions, ready):
    """A server of two connections that sets `ready` when both have completed exchanges."""
    both = threading.Barrier(2)

    def script(peer):
        peer.greet()
        peer.serve(actions(4, 7), exchanges=2)
        both.wait(30)
        ready.set()
        peer.serve(actions(4, 7))

    return fake_server(script)


@pytest.fixture
def running(fake_server, actions):
    """A client of two processes that would run for ever, and the pids of its children."""
    ready = threading.Event()
    server = served(fake_server, actions, ready)
    arguments = [*FLAGS.split(), str(server.port)]
    parent = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert ready.wait(30)
    children = children_of(parent.pid)
    assert len(children) == 2
    yield parent, children, server
    parent.kill()
    parent.communicate()


def summary():
    return json.loads(Path("plugrl-client/run/summary.json").read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_parent_ends_the_children_cleanly(running, gone, number):
    parent, children, server = running
    parent.send_signal(number)
    out, err = parent.communicate(timeout=20)
    assert parent.returncode == 0, err
    assert out.startswith("interrupted: ")
    server.wait()
    assert [peer.closed_with[0] for peer in server.peers] == [1000, 1000]
    for pid in children:
        gone(pid)
    ended = summary()
    assert [part["outcome"] for part in ended["processes"]] == ["interrupted", "interrupted"]
    assert ended["feedback_rows"] == server.feedback_rows
    assert {record["ended"] for record in ended["connections"]} == {"closed by this client"}


@pytest.mark.parametrize(("number", "closes"), [(signal.SIGKILL, [1000, None]), (signal.SIGTERM, [1000, 1000])])
def test_a_child_that_somebody_else_ends_is_named_and_takes_the_others_with_it(running, gone, number, closes):
    parent, children, server = running
    os.kill(children[0], number)
    out, err = parent.communicate(timeout=20)
    assert parent.returncode == 1
    assert re.search(rf"client process [01] \(envs \d to \d\) was ended by {number.name}", err)
    assert out.startswith("failed: ")
    server.wait()
    assert sorted((peer.closed_with[0] if peer.closed_with else None for peer in server.peers), key=str) == closes
    for pid in children:
        gone(pid)
    ended = summary()
    outcomes = sorted(part["outcome"] for part in ended["processes"])
    assert outcomes == [f"failed: was ended by {number.name}", "interrupted"]
    if number == signal.SIGTERM:
        assert ended["feedback_rows"] == server.feedback_rows


def test_no_orphans_when_the_parent_is_killed(running, gone):
    parent, children, server = running
    parent.kill()
    for pid in children:
        gone(pid)
    server.wait()
    assert [peer.closed_with[0] for peer in server.peers] == [1000, 1000]


def test_a_child_that_is_stopped_does_not_outlive_a_second_signal(running, gone):
    parent, children, _ = running
    os.kill(children[0], signal.SIGSTOP)
    parent.send_signal(signal.SIGINT)
    gone(children[1])  # so the parent has passed it on
    parent.send_signal(signal.SIGINT)
    parent.communicate(timeout=8)
    assert parent.returncode == 130
    gone(children[0])


def test_a_child_that_does_not_end_is_killed_after_a_grace_time(broken, capsys, monkeypatch):
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.5)
    _, arguments = broken("hang")
    hung = threading.Event()

    def interrupt():
        hung.wait(30)
        os.kill(os.getpid(), signal.SIGTERM)

    watching = threading.Thread(target=interrupt)
    watching.start()
    monkeypatch.setattr("plugrl_env_client.reporting.progress._Plain.interval", 0.01)

    def show(self, processes):
        if any(process.state.startswith("no step") for process in processes):
            hung.set()

    monkeypatch.setattr("plugrl_env_client.reporting.progress._Plain.show", show)
    monkeypatch.setattr("plugrl_env_client.supervision.child._NEWS_SECONDS", 1.5)
    assert main(arguments) == 0
    watching.join()
    error = capsys.readouterr().err
    assert "client process 0 (envs 0 to 2) did not end within 0.5 s and is killed" in error
    assert [part["outcome"] for part in summary()["processes"]] == ["killed: did not end within 0.5 s", "interrupted"]
