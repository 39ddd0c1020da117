"""Several groups in one process: their seeds, their ends and their failures."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from plugrl_env_client.client import run_alone
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.dummy_v1 import DummyConfig, DummyEnv
from plugrl_env_client.envs.gym_families.classic_v1 import ClassicConfig
from plugrl_env_client.envs.probe_v1 import ProbeConfig
from plugrl_env_client.groups import side_by_side
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.options import ClientOptions, Run, RunnerOptions
from plugrl_env_client.recording.formats.npz_files import NpzFiles
from plugrl_env_client.recording.recorder_options import RecorderOptions
from plugrl_env_client.rollout import Outcome


def run(server, config=None, *, groups=3, envs=3, interrupts=None, show=lambda snapshot: None, **options):
    config = config or DummyConfig()
    uid = "classic-v1" if isinstance(config, ClassicConfig) else "dummy-v1"
    chosen = ClientOptions(server_port=server.port, num_envs=envs, num_groups=groups, **options)
    settings = {"interrupts": interrupts or Interrupts(), "show": show, "interval": 0.01}
    return run_alone(Run(uid, config, chosen, seed=5, offset=0), **settings)


def served(actions, exchanges=None):
    def script(peer):
        peer.greet()
        peer.serve(actions(4, 7), exchanges)

    return script


def first_observations(fake_server, actions, groups):
    """The first observation of each env of the run, and the numbers that the groups declared."""
    first = {}

    def script(peer):
        peer.greet(features=["declare-spaces"])
        infer = peer.infer()
        client = infer["spaces"]["client"]
        for row, env in enumerate(infer["env_indices"].tolist()):
            assert env == row, "env indices are a connection's own"
            first[client + row] = infer["data"]["states"]["obs"][row].tolist()
        peer.act(actions(1, 1)(infer))
        peer.feedback()
        peer.stop()

    finished = run(fake_server(script), ClassicConfig(name="Pendulum-v1"), groups=groups, envs=5)
    assert finished.outcome is Outcome.SERVER_STOPPED
    return first


def test_env_i_of_the_run_has_its_seed_and_number_whatever_the_split(fake_server, actions):
    whole = first_observations(fake_server, actions, groups=1)
    assert sorted(whole) == [0, 1, 2, 3, 4]
    assert first_observations(fake_server, actions, groups=2) == whole
    assert first_observations(fake_server, actions, groups=5) == whole


def test_one_group_steps_while_another_waits(fake_server, actions):
    stepped = threading.Event()

    def slow(peer):
        peer.greet()
        infer = peer.infer()
        assert stepped.wait(10), "the other group has gone on meanwhile"
        peer.act(actions(4, 7)(infer))
        peer.feedback()
        peer.serve(actions(4, 7))

    def quick(peer):
        peer.greet()
        peer.serve(actions(4, 7), exchanges=5)
        stepped.set()
        peer.serve(actions(4, 7))

    finished = run(fake_server(slow, quick), groups=2, envs=2, num_steps=80)
    assert (finished.outcome, finished.snapshot.steps) == (Outcome.LIMIT, 80)


def test_the_counts_of_all_groups_are_shown_together_and_add_up(fake_server, actions):
    shown = []
    server = fake_server(served(actions))
    finished = run(server, show=shown.append, num_episodes=6)
    server.wait()
    assert [snapshot.steps for snapshot in shown] == sorted(snapshot.steps for snapshot in shown)
    assert all(snapshot.groups == 3 and 0 <= snapshot.wait_share <= 1 for snapshot in shown)
    assert (finished.snapshot.episodes, finished.snapshot.steps) == (6, 600)
    assert finished.snapshot.feedback_rows == server.feedback_rows == 150
    assert len(finished.snapshot.connections) == 3
    assert [peer.closed_with[0] for peer in server.peers] == [1000] * 3


def test_a_lost_group_reconnects_alone(fake_server, actions):
    def lost(peer):
        peer.greet()
        peer.serve(actions(4, 7), exchanges=1)
        peer.resync()

    server = fake_server(lost, served(actions))
    finished = run(server, num_steps=120)
    server.wait()
    assert (finished.outcome, finished.snapshot.reconnects, len(server.peers)) == (Outcome.LIMIT, 1, 4)
    assert finished.snapshot.feedback_rows == server.feedback_rows


def test_a_failing_group_names_itself_and_ends_the_others_with_close_frames(fake_server, actions, monkeypatch):
    def step(self, actions):
        all_are_on = sum(bool(peer.infers) for peer in server.peers) == 3
        if all_are_on and threading.current_thread().name == "group 1":
            raise ZeroDivisionError("joint 3")
        return real(self, actions)

    real = DummyEnv.step
    monkeypatch.setattr(DummyEnv, "step", step)
    server = fake_server(served(actions))
    finished = run(server, envs=5)
    server.wait()
    assert finished.outcome is Outcome.FAILED
    assert finished.error == "group 1 (envs 2 to 3): dummy-v1 failed: ZeroDivisionError: joint 3"
    assert sorted(peer.closed_with[0] for peer in server.peers) == [1000, 1000, 1011]
    assert finished.snapshot.feedback_rows == server.feedback_rows


def test_a_refused_group_is_a_failure_in_the_servers_words(fake_server, actions):
    server = fake_server(served(actions), lambda peer: peer.close(1008, "plugrl-server-reject: not you"))
    finished = run(server, groups=2, envs=2)
    assert finished.error.startswith("group ")
    assert "plugrl-server-reject: not you" in finished.error


@pytest.mark.parametrize("last", [0, 1, 2])
def test_envs_that_cannot_be_made_are_an_error_before_anyone_connects(fake_server, monkeypatch, last):
    closed = []

    def make(uid, config, num_envs):
        if threading.current_thread().name == f"group {last}":
            raise EnvError("no third camera")
        return DummyEnv(config, num_envs)

    monkeypatch.setattr("plugrl_env_client.groups.group.make_env", make)
    monkeypatch.setattr(DummyEnv, "close", lambda env: closed.append(threading.current_thread().name))
    server = fake_server(lambda peer: None)
    assert run(server).error == "no third camera"
    assert server.peers == []
    assert sorted(closed) == ["group 0", "group 1"][:last]


def test_an_env_that_exits_has_failed_and_ends_the_others(fake_server, actions, monkeypatch):
    def step(self, actions):
        if threading.current_thread().name == "group 1":
            sys.exit(3)
        return real(self, actions)

    def show(snapshot):
        assert time.monotonic() - began < 20, "nobody has heard of it"

    real = DummyEnv.step
    monkeypatch.setattr(DummyEnv, "step", step)
    began = time.monotonic()
    finished = run(fake_server(served(actions)), show=show)
    assert finished.outcome is Outcome.FAILED
    assert finished.error == "group 1 (env 1): dummy-v1 failed: RuntimeError: it raised SystemExit(3)"


def test_a_signal_while_envs_are_made_is_not_for_those_to_come(fake_server, monkeypatch):
    made, closed = [], []

    def make(uid, config, num_envs):
        made.append(threading.current_thread().name)
        if len(made) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return DummyEnv(config, num_envs)

    monkeypatch.setattr("plugrl_env_client.groups.group.make_env", make)
    monkeypatch.setattr(DummyEnv, "close", lambda env: closed.append(threading.current_thread().name))
    server = fake_server(lambda peer: None)
    with Interrupts().handling() as interrupts:
        finished = run(server, envs=7, groups=4, interrupts=interrupts)
    assert (finished.outcome, finished.error) == (Outcome.INTERRUPTED, None)
    assert len(finished.snapshot.env_steps) == 7
    assert sorted(closed) == made == ["group 0", "group 1"]
    assert server.peers == []


def test_an_env_lives_in_one_thread(fake_server, actions, monkeypatch):
    seen = set()

    def noted(name, real):
        def method(self, *args):
            seen.add((name, threading.current_thread().name, id(self)))
            return real(self, *args)

        return method

    for name in ("__init__", "reset", "step", "reset_indices", "close"):
        monkeypatch.setattr(DummyEnv, name, noted(name, getattr(DummyEnv, name)))
    run(fake_server(served(actions)), num_episodes=6)
    for env in {env for _, _, env in seen}:
        assert len({thread for _, thread, owner in seen if owner == env}) == 1
    assert len({name for name, _, _ in seen}) == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_groups_with_close_frames(fake_server, actions, number):
    all_busy = threading.Barrier(3, action=lambda: os.kill(os.getpid(), number))

    def script(peer):
        peer.greet()
        peer.serve(actions(4, 7), exchanges=2)
        peer.infer()
        all_busy.wait(10)  # and nobody is answered any more
        peer.receive("nothing")

    server = fake_server(script)
    began = time.monotonic()
    with Interrupts().handling() as interrupts:
        finished = run(server, interrupts=interrupts)
    server.wait()
    assert time.monotonic() - began < 8
    assert (finished.outcome, finished.error) == (Outcome.INTERRUPTED, None)
    assert [peer.closed_with[0] for peer in server.peers] == [1000] * 3
    assert finished.snapshot.feedback_rows == server.feedback_rows == 6


def test_a_group_that_does_not_end_is_named(fake_server, actions, monkeypatch):
    stuck = threading.Event()
    interrupts = Interrupts()

    def hang(self, actions):
        interrupts.request()
        assert stuck.wait(10)
        return real(self, actions)

    real = DummyEnv.step
    monkeypatch.setattr(DummyEnv, "step", hang)
    monkeypatch.setattr(side_by_side, "GRACE_SECONDS", 0.05)
    finished = run(fake_server(served(actions)), groups=2, envs=2, interrupts=interrupts)
    stuck.set()
    assert finished.error in [f"group {i} (env {i}) did not end within 0.05 s" for i in (0, 1)]


def test_a_group_that_the_recorder_holds_up_is_waited_for(fake_server, actions, tmp_path, monkeypatch):
    may_write = threading.Event()
    interrupts = Interrupts()
    joined = []

    def commit(self, finished):
        interrupts.request()
        assert may_write.wait(20)
        return real(self, finished)

    def join(threads, seconds):
        joined.append(seconds)
        if len(joined) == 3:
            may_write.set()
        real_join(threads, seconds)

    real, real_join = NpzFiles.commit, side_by_side._join
    monkeypatch.setattr(NpzFiles, "commit", commit)
    monkeypatch.setattr(side_by_side, "_join", join)
    monkeypatch.setattr(side_by_side, "GRACE_SECONDS", 0.1)
    recorder = RecorderOptions(format=("npz",), folder=tmp_path)
    runner = RunnerOptions(max_episode_steps=4)
    server = fake_server(served(actions))
    finished = run(server, groups=2, envs=2, interrupts=interrupts, recorder=recorder, runner=runner)
    assert (finished.outcome, finished.error) == (Outcome.INTERRUPTED, None)
    assert len(joined) >= 3
    assert finished.snapshot.recording.episodes == len(list((tmp_path / "npz").iterdir())) >= 1


def test_when_the_server_has_stopped_one_group_the_others_need_not_find_out(fake_server, actions, monkeypatch):
    """A group whose connection broke at that moment would go on trying for minutes."""
    monkeypatch.setattr(side_by_side, "LINGER_SECONDS", 0.05)

    def stopped(peer):
        peer.greet()
        peer.serve(actions(4, 7), exchanges=3)
        peer.stop()

    server = fake_server(stopped, served(actions))
    finished = run(server, groups=2, envs=2)
    server.wait()
    assert (finished.outcome, finished.error) == (Outcome.SERVER_STOPPED, None)
    assert server.peers[1].closed_with[0] == 1000


def test_the_actions_reach_the_envs_of_their_own_group(fake_server):
    """Each connection sends its own number; an env of its group reports nothing else."""

    def script(peer):
        peer.greet()
        me = float(len(server.peers))
        for _ in range(20):
            infer = peer.infer()
            told = infer["data"]["states"]["a"]
            assert np.isin(told, [0.0, me]).all()
            peer.act(np.full((3, len(told), 1), me))
            peer.feedback()
        peer.stop()

    server = fake_server(script)
    options = ClientOptions(server_port=server.port, num_envs=7, num_groups=3)
    finished = run_alone(
        Run("probe-v1", ProbeConfig(), options, 0, 0), interrupts=Interrupts(), show=lambda snapshot: None, interval=1e9
    )
    assert finished.outcome is Outcome.SERVER_STOPPED
