"""A child's life, as its pipe, its log and its exit code show it."""

import dataclasses
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from plugrl_env_client.client import Finished, Share
from plugrl_env_client.envs.dummy_v1 import DummyConfig
from plugrl_env_client.options import ClientOptions, Run
from plugrl_env_client.rollout import Outcome
from plugrl_env_client.supervision.child_main import SHOW_STACKS, child_main
from plugrl_env_client.supervision.messages import Said


@pytest.fixture
def child(tmp_path):
    """Start a child of two dummy envs; returns the process and our end of its pipe."""
    started = []

    def start(*, num_steps=20, **options):
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        run = Run("dummy-v1", DummyConfig(), dataclasses.replace(ClientOptions(), **options), 0, 0)
        share = Share(1, 4, 2, num_steps, None)
        process = context.Process(target=child_main, args=(run, share, theirs, tmp_path / "1.log"))
        process.start()
        theirs.close()
        started.append((process, ours))
        return process, ours

    yield start
    for process, pipe in started:
        process.kill()
        process.join()
        pipe.close()


def everything(pipe):
    said = []
    try:
        while pipe.poll(30):
            said.append(pipe.recv())
    except EOFError:
        return said
    raise AssertionError("the child has not closed its pipe")


def test_a_child_runs_its_share_and_says_so(child, fake_server, actions):
    def script(peer):
        peer.greet(features=["declare-spaces"])
        peer.serve(actions(1, 7))

    server = fake_server(script)
    process, pipe = child(server_port=server.port)
    *_, finished = everything(pipe)
    process.join()
    assert (process.exitcode, finished.outcome, finished.snapshot.steps) == (0, Outcome.LIMIT, 20)


def test_a_child_that_fails_says_why_here_and_in_its_log(child, tmp_path):
    process, pipe = child(server_port=1, max_reconnects=1)
    said = everything(pipe)
    process.join()
    assert process.exitcode == 1
    assert said[-1].final
    assert "gave up after --max-reconnects 1" in said[-1].error
    (line,) = [message for message in said if isinstance(message, Said)]
    assert "connection refused" in line.text
    assert f"WARNING {line.text}\n" in (tmp_path / "1.log").read_text()


def test_modules_that_cannot_be_imported_are_a_final_failure(child):
    process, pipe = child(modules=("no_such_module_here",))
    *_, finished = everything(pipe)
    process.join()
    assert (process.exitcode, finished.final, len(finished.snapshot.env_steps)) == (1, True, 2)
    assert "--import no_such_module_here" in finished.error


def test_a_child_leads_a_session_and_heeds_only_its_parents_signal(child, fake_server, actions):
    def script(peer):
        peer.greet()
        peer.infer()
        process, _ = children[0]
        groups.append(os.getpgid(process.pid))
        statuses.append(Path(f"/proc/{process.pid}/status").read_text())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
            os.kill(process.pid, number)
        peer.feedback()  # never comes

    groups, children, statuses = [], [], []
    server = fake_server(script)
    children.append(child(server_port=server.port))
    process, pipe = children[0]
    finished = [said for said in everything(pipe) if isinstance(said, Finished)]
    process.join()
    server.wait()
    assert groups == [process.pid]
    assert "\nSigBlk:\t0000000000000000\n" in statuses[0], "what its envs start may be interrupted"
    assert (process.exitcode, [how.outcome for how in finished]) == (0, [Outcome.INTERRUPTED])
    assert server.peers[0].closed_with[0] == 1000


def test_a_child_shows_its_stacks_while_it_runs_and_goes_on(child, fake_server, actions, tmp_path):
    def script(peer):
        peer.greet()
        for _ in range(100):
            os.kill(children[0][0].pid, SHOW_STACKS)
            peer.act(actions(1, 7)(peer.infer()))
            peer.feedback()
        peer.stop()

    children = []
    server = fake_server(script)
    children.append(child(server_port=server.port, num_groups=2, num_envs=2, num_steps=None))
    process, pipe = children[0]
    *_, finished = everything(pipe)
    process.join()
    assert (process.exitcode, finished.outcome) == (0, Outcome.SERVER_STOPPED)
    assert "in _report" in (tmp_path / "1.log").read_text(), "one of its threads"
