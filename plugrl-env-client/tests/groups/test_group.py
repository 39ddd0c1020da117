"""One group's envs, connection and rollout, as they come from the options."""

import dataclasses
import logging
import time

import numpy as np
import pytest
from plugrl_env_client.client import run_alone
from plugrl_env_client.envs.base_env import EnvError, Observation
from plugrl_env_client.envs.dummy_v1 import DummyConfig, DummyEnv
from plugrl_env_client.envs.gym_families.classic_v1 import ClassicConfig
from plugrl_env_client.groups.group import Group
from plugrl_env_client.groups.share import Share, whole
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.options import MAX_ENVS, ClientOptions, Run, RunnerOptions
from plugrl_env_client.rollout import Outcome


def options(port=1, **changes):
    return dataclasses.replace(ClientOptions(server_port=port, max_reconnects=0), **changes)


def client(uid, config, opts, share=None, *, seed=0, offset=0):
    run = Run(uid, config, opts, seed, offset)
    return Group(run, share or whole(opts), Interrupts()).run(lambda: None)


def first_observations(fake_server, actions, share, **settings):
    seen = {}

    def script(peer):
        peer.greet(features=["declare-spaces"])
        infer = peer.infer()
        seen["first"] = infer["data"]["states"]["obs"].tolist()
        seen["client"] = infer["spaces"]["client"]
        peer.act(actions(1, 1)(infer))
        peer.feedback()
        peer.stop()

    server = fake_server(script)
    finished = client("classic-v1", ClassicConfig(name="Pendulum-v1"), options(server.port), share, **settings)
    assert finished.outcome is Outcome.SERVER_STOPPED
    return seen


def test_env_i_of_the_run_has_its_seed_whatever_the_split(fake_server, actions):
    whole = first_observations(fake_server, actions, Share(0, 0, 4, None, None), seed=5)
    second = first_observations(fake_server, actions, Share(1, 2, 2, None, None), seed=5)
    assert second["first"] == whole["first"][2:]
    assert (whole["client"], second["client"]) == (0, 2)


def test_an_offset_keeps_clients_apart(fake_server, actions):
    first = first_observations(fake_server, actions, Share(0, 0, 2, None, None), seed=5)
    other = first_observations(fake_server, actions, Share(0, 0, 2, None, None), seed=5, offset=1)
    assert other["client"] == MAX_ENVS
    assert not set(map(tuple, other["first"])) & set(map(tuple, first["first"]))


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["__init__", "reset", "step"])
def test_an_env_that_would_end_the_process_has_failed(fake_server, actions, monkeypatch, where, raised):
    def leave(self, *args):
        raise raised

    def script(peer):
        peer.greet()
        peer.serve(actions(1, 7))

    monkeypatch.setattr(DummyEnv, where, leave)
    opts = options(fake_server(script).port)
    finished = run_alone(
        Run("dummy-v1", DummyConfig(), opts, 0, 0), interrupts=Interrupts(), show=lambda snapshot: None, interval=1.0
    )
    assert (finished.outcome, finished.final) == (Outcome.FAILED, False)
    assert finished.error == f"dummy-v1 failed: RuntimeError: it raised {raised!r}"


def test_but_a_second_signal_ends_it(monkeypatch):
    interrupts = Interrupts()

    def leave(self, *args):
        interrupts.request()
        raise SystemExit(130)

    monkeypatch.setattr(DummyEnv, "reset", leave)
    group = Group(Run("dummy-v1", DummyConfig(), options(), 0, 0), whole(options()), interrupts)
    with pytest.raises(SystemExit):
        group.run(lambda: None)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_flag_decides_whether_observations_are_reused(fake_server, actions, wanted):
    def script(peer):
        peer.greet(features=["reuse-feedback-obs"])
        for reused in (False, wanted):
            infer = peer.infer()
            assert infer.get("reuse", np.array([False])).tolist() == [reused]
            assert len(infer["data"]["text"]) == (0 if reused else 1)
            peer.act(actions(1, 1)(infer))
            peer.feedback()
        peer.stop()

    port = fake_server(script).port
    finished = client("dummy-v1", DummyConfig(images=("cam",)), options(port, reuse_feedback_obs=wanted))
    assert finished.outcome is Outcome.SERVER_STOPPED


def test_no_server_is_a_failure_with_its_reason():
    finished = client("dummy-v1", DummyConfig(), options(1))
    assert finished.outcome is Outcome.FAILED
    assert finished.error == "ws://127.0.0.1:1: connecting: connection refused; gave up after --max-reconnects 0"


def test_envs_that_cannot_be_made_are_an_error_at_once():
    with pytest.raises(EnvError, match="did you mean Pendulum-v1"):
        client("classic-v1", ClassicConfig(name="Pendulum"), options(1))


def test_an_observation_that_cannot_be_made_is_told_with_the_env_and_the_entry(monkeypatch):
    monkeypatch.setattr(DummyEnv, "reset", lambda env, seed: Observation({}, {"at": [[0.0]]}, [""]))
    finished = client("dummy-v1", DummyConfig(), options(1))
    assert (finished.outcome, finished.usage) == (Outcome.FAILED, False)
    assert finished.error == "dummy-v1: observation.states.at: expected float[1,d], got list"


def test_actions_that_do_not_fit_are_a_failure_that_names_both_sides(fake_server, actions):
    def script(peer):
        peer.greet()
        peer.act(actions(4, 7)(peer.infer()))
        peer.feedback()

    finished = client("classic-v1", ClassicConfig(), options(fake_server(script).port))
    assert finished.error == ("the server sends actions of shape (7,), CartPole-v1 takes Discrete(2) of shape ()")


def test_a_failing_env_leaves_its_traceback_and_closes(fake_server, actions, monkeypatch, caplog):
    def script(peer):
        peer.greet()
        peer.serve(actions(1, 1))

    def fail(self, actions):
        raise ZeroDivisionError("joint 3")

    closed = []
    monkeypatch.setattr("plugrl_env_client.envs.dummy_v1.DummyEnv.step", fail)
    monkeypatch.setattr("plugrl_env_client.envs.dummy_v1.DummyEnv.close", lambda env: closed.append(env))
    with caplog.at_level(logging.ERROR):
        finished = client("dummy-v1", DummyConfig(), options(fake_server(script).port))
    assert finished.error == "dummy-v1 failed: ZeroDivisionError: joint 3"
    assert "ZeroDivisionError" in caplog.text
    assert len(closed) == 1


def test_a_refusal_is_final_and_an_envs_failure_is_not(fake_server, actions, monkeypatch):
    refusing = fake_server(lambda peer: peer.close(1008, "plugrl-server-reject: no"))
    assert client("dummy-v1", DummyConfig(), options(refusing.port)).final

    def fail(self, actions):
        raise OSError("the robot does not answer")

    def script(peer):
        peer.greet()
        peer.serve(actions(1, 1))

    monkeypatch.setattr("plugrl_env_client.envs.dummy_v1.DummyEnv.step", fail)
    assert not client("dummy-v1", DummyConfig(), options(fake_server(script).port)).final


def test_a_group_is_busy_while_its_envs_work_and_not_while_it_waits(fake_server, actions, monkeypatch):
    seen = {}

    def look(when):
        seen[when] = group.vital()

    def script(peer):
        peer.greet()
        peer.infer()
        until = time.monotonic() + 10
        while group.vital().busy and time.monotonic() < until:  # it has sent, and is about to wait
            continue
        look("waiting")
        peer.act(actions(2, 1)(peer.infers[-1]))
        peer.feedback()
        peer.stop()

    step, close = DummyEnv.step, DummyEnv.close
    monkeypatch.setattr(DummyEnv, "step", lambda env, actions: (look("stepping"), step(env, actions))[1])
    monkeypatch.setattr(DummyEnv, "close", lambda env: (look("closing"), close(env))[1])
    run = Run("dummy-v1", DummyConfig(), options(fake_server(script).port), 0, 0)
    group = Group(run, whole(run.options), Interrupts())
    look("made")
    group.run(lambda: None)
    look("over")
    assert seen == {
        "made": (0, False),
        "waiting": (0, False),
        "stepping": (1, True),
        "closing": (2, True),
        "over": (2, False),
    }


def test_an_env_that_breaks_at_ctrl_c_was_interrupted(fake_server, actions, monkeypatch, caplog):
    def script(peer):
        peer.greet()
        peer.serve(actions(1, 1))

    interrupts = Interrupts()

    def die(self, actions):
        interrupts.request()
        raise EOFError("the worker process is gone")

    def refuse(self):
        raise BrokenPipeError("gone")

    monkeypatch.setattr("plugrl_env_client.envs.dummy_v1.DummyEnv.step", die)
    monkeypatch.setattr("plugrl_env_client.envs.dummy_v1.DummyEnv.close", refuse)
    run = Run("dummy-v1", DummyConfig(), options(fake_server(script).port), 0, 0)
    with caplog.at_level(logging.WARNING):
        finished = Group(run, whole(run.options), interrupts).run(lambda: None)
    assert (finished.outcome, finished.error) == (Outcome.INTERRUPTED, None)
    assert "dummy-v1 did not close: BrokenPipeError: gone" in caplog.text


def test_an_observation_that_is_too_large_for_a_frame_is_named(fake_server):
    server = fake_server(lambda peer: (peer.greet(), peer.socket.recv(timeout=5)))
    config = DummyConfig(images=("front",), image_size=700)
    finished = client("dummy-v1", config, options(server.port, max_frame_mib=1))
    assert "frame: expected at most 1048576 bytes" in finished.error


def test_what_the_rollout_counts_is_returned(fake_server, actions):
    def script(peer):
        peer.greet()
        peer.serve(actions(4, 1), exchanges=50)
        peer.stop()

    finished = client("dummy-v1", DummyConfig(), options(fake_server(script).port, num_envs=2))
    assert (finished.snapshot.steps, finished.snapshot.episodes) == (400, 4)
    assert finished.snapshot.mean_return == np.float64(100.0)


def test_an_env_in_real_time_keeps_count(fake_server, actions):
    def script(peer):
        peer.greet()
        peer.serve(actions(2, 7), exchanges=5)
        peer.stop()

    paced = options(fake_server(script).port, runner=RunnerOptions(fps=1000.0, action_deadline=10.0))
    finished = client("dummy-v1", DummyConfig(), paced)
    assert finished.outcome is Outcome.SERVER_STOPPED
    counts = finished.snapshot.pacing
    assert (counts.steps, counts.answers, counts.late_answers) == (10, 5, 0)
    assert sum(counts.ages.bins.values()) == 8  # the first answer was a warm-up


def test_a_time_of_capture_that_cannot_be_is_told_with_the_env_and_no_traceback(monkeypatch, caplog):
    monkeypatch.setattr(DummyEnv, "captured_at", time.monotonic() + 1_000.0, raising=False)
    options = ClientOptions(max_reconnects=0, runner=RunnerOptions(fps=1000.0))
    finished = Group(Run("dummy-v1", DummyConfig(), options, 0, 0), whole(options), Interrupts()).run(lambda: None)
    assert finished.error.startswith("dummy-v1: captured_at ")
    assert (finished.outcome, finished.final) == (Outcome.FAILED, True)
    assert not caplog.records


def test_zeros_are_refused_where_they_are_no_standstill(fake_server, actions):
    runner = RunnerOptions(fps=1000.0, on_stale="zero")
    finished = client("classic-v1", ClassicConfig(name="CartPole-v1"), options(runner=runner))
    assert finished.error == "--runner.on-stale zero: CartPole-v1 takes Discrete(2), where zeros are no standstill"
