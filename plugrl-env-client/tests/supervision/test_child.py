"""The parent's hold on one child: what it sees, from the start to the exit code."""

import dataclasses
import multiprocessing.connection
import os
import signal

import pytest
from plugrl_env_client.client import Share, Vital
from plugrl_env_client.envs.dummy_v1 import DummyConfig
from plugrl_env_client.options import ClientOptions, Run
from plugrl_env_client.registration import env_config, import_modules
from plugrl_env_client.reporting.tally import nothing_yet
from plugrl_env_client.supervision import child as child_module
from plugrl_env_client.supervision.child import Child
from plugrl_env_client.supervision.messages import Report


@pytest.fixture
def make(tmp_path):
    """A child of two dummy envs of the run's seven, not started."""
    made = []

    def new(share=None, *, env=None, **options):
        uid, config = env or ("dummy-v1", DummyConfig())
        run = Run(uid, config, dataclasses.replace(ClientOptions(num_envs=7), **options), 0, 0)
        made.append(Child(run, share or Share(1, 5, 2, 20, None), tmp_path / "1.log"))
        return made[-1]

    yield new
    for child in made:
        child.kill()


def followed(child):
    """Look until it has ended; its failures."""
    failures = []
    while child.is_alive:
        assert multiprocessing.connection.wait(child.handles, 30)
        failures.append(child.look(0.0))
    return [failure for failure in failures if failure is not None]


def served(fake_server, actions, **settings):
    def script(peer):
        peer.greet()
        peer.serve(actions(1, 7), **settings)
        peer.stop()

    return fake_server(script).port


def test_a_life(make, fake_server, actions):
    child = make(server_port=served(fake_server, actions))
    assert (child.name, child.is_over) == ("client process 1 (envs 5 to 6)", True)
    assert child.status.state == "not started"
    child.start()
    assert (child.is_alive, child.is_over, child.status.state, child.status.is_alive) == (True, False, "starting", True)
    assert followed(child) == []
    assert (child.is_over, child.status.state, child.status.snapshot.steps) == (True, "ran what was asked for", 20)
    assert (child.status.first_env, child.status.restarts, child.status.is_alive) == (5, 0, False)
    assert child.handles == []


def test_another_life_does_what_is_left(make, fake_server, actions):
    child = make(Share(1, 5, 2, 30, None), server_port=served(fake_server, actions, exchanges=6))
    for _ in range(2):
        child.start()
        assert followed(child) == []
        assert child.status.state == "the server ended the run"
    child.start()  # 30 - 12 - 12
    assert followed(child) == []
    status = child.status
    assert (status.state, status.restarts, status.snapshot.steps) == ("ran what was asked for", 2, 30)
    assert status.snapshot.env_steps.tolist() == [15, 15]
    assert [record.exchanges for record in status.snapshot.connections] == [6, 6, 3]


def test_a_child_is_writing_as_long_as_it_says_so(make, monkeypatch):
    now = [1000.0]
    child = make(server_port=1, max_reconnects=1_000)
    report = Report(nothing_yet(2), (Vital(7, busy=False),), writing=True)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    child._take(report)
    assert not child.is_writing, "it is not alive"
    child._process = object()
    child._take(report)
    assert (child.is_writing, child.status.state) == (True, "writing")
    now[0] += child_module._NEWS_SECONDS
    assert not child.is_writing, "it has said nothing for a while"
    child._take(report)
    assert child.is_writing
    child._take(report._replace(writing=False))
    assert (child.is_writing, child.status.state) == (False, "waiting")
    child._process = None


def test_a_death_is_a_failure_that_may_pass(make):
    child = make(server_port=1, max_reconnects=1_000)
    child.start()
    os.kill(child._process.pid, signal.SIGKILL)
    (failure,) = followed(child)
    assert (failure.text, failure.final) == ("client process 1 (envs 5 to 6) was ended by SIGKILL", False)
    assert child.status.state == "failed: was ended by SIGKILL"


def test_a_child_that_is_asked_to_end_before_it_can_hear_was_interrupted(make):
    child = make(server_port=1, max_reconnects=1_000)
    child.start()
    child.terminate()
    followed(child)
    assert child.status.state == "interrupted"


def hung(make, fake_server, actions, how, at_step, **options):
    """The failure of a child that is found to hang as soon as it does."""
    import_modules(["broken_env"])
    config = env_config("broken-v1")(how=how, at_step=at_step, of=2)
    port = served(fake_server, actions)
    child = make(env=("broken-v1", config), server_port=port, modules=("broken_env",), **options)
    child.start()
    while not child.log.exists() or f"about to {how}" not in child.log.read_text():
        multiprocessing.connection.wait(child.handles, 0.1)
        assert child.look(0.0) is None
    failure = child.look(1e6)
    assert not child.is_alive
    assert not failure.final
    assert any("in break_down" in line for line in failure.last_lines)
    return failure.text


@pytest.mark.parametrize("how", ["hang", "spin"])
@pytest.mark.parametrize("at_step", [0, 5, -1], ids=["made", "stepped", "closed"])
def test_a_child_hangs_whether_it_waits_or_computes(make, fake_server, actions, how, at_step):
    text = hung(make, fake_server, actions, how, at_step)
    assert "client process 1 (envs 5 to 6) hung: no " in text


def test_one_group_that_hangs_is_enough(make, fake_server, actions):
    share = Share(0, 0, 3, None, None)  # one group of two envs, which hangs, and one of one env
    assert "hung" in hung(make, fake_server, actions, "hang", 5, share=share, num_groups=2)


def test_a_later_group_that_is_never_made_is_found_out(make, monkeypatch):
    monkeypatch.setattr(child_module, "_STACKS_SECONDS", 0.2)
    child = make(server_port=1, max_reconnects=1_000, num_groups=2)
    child.start()
    os.kill(child._process.pid, signal.SIGSTOP)  # it says nothing itself
    the_first_is_made = Report(nothing_yet(1), (Vital(0, busy=False),), writing=False)
    child._take(the_first_is_made)
    assert (child.look(400.0), child.status.state) == (None, "starting")
    child._take(the_first_is_made)
    assert "hung: no first env step for 600 s" in child.look(400.0).text


def test_a_signal_of_somebody_elses_is_a_failure_that_may_pass(make, fake_server, actions):
    def script(peer):
        peer.greet()
        peer.serve(actions(1, 7), exchanges=3)
        os.kill(child._process.pid, signal.SIGTERM)
        peer.infer()

    child = make(Share(1, 5, 2, None, None), server_port=fake_server(script).port)
    child.start()
    (failure,) = followed(child)
    assert (failure.text, failure.final) == ("client process 1 (envs 5 to 6) was ended by SIGTERM", False)
    assert (child.status.state, child.status.snapshot.steps) == ("failed: was ended by SIGTERM", 6)


def test_a_ctrl_c_before_a_child_can_hear_is_its_parents(make, fake_server, actions):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    child = make(server_port=served(fake_server, actions))
    child.start()
    os.kill(child._process.pid, signal.SIGINT)
    assert followed(child) == []
    assert child.status.state == "ran what was asked for"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_who_may_take_as_long_as_he_likes_never_hangs(make):
    child = make(server_port=1, max_reconnects=1_000, hang_timeout=None)
    child.start()
    assert child.look(1e6) is None
    assert child.is_alive


def test_a_child_that_stops_reporting_is_found_out_even_if_nothing_can_be_shown(make, monkeypatch):
    monkeypatch.setattr(child_module, "_STACKS_SECONDS", 0.2)
    child = make(server_port=1, max_reconnects=1_000)
    child.start()
    os.kill(child._process.pid, signal.SIGSTOP)
    failure = child.look(601.0)
    assert failure.text.endswith("hung: no first env step for 600 s, and it was not waiting for the server")
    assert child.is_over


def test_the_last_one_to_be_killed_says_how(make):
    child = make(server_port=1, max_reconnects=1_000)
    child.start()
    child.kill("killed: it was late")
    assert (child.is_over, child.status.state) == (True, "killed: it was late")
    child.kill()
    assert child.status.state == "killed: it was late"


def test_restarts_back_off_unless_the_last_life_was_long(make, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    child = make()
    child._began = now[0]
    assert [child.restart_later() for _ in range(8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert (child.is_over, child.is_due(now[0] + 59), child.is_due(now[0] + 60)) == (False, False, True)
    assert child.status.state == "restarts in 60 s"
    now[0] += child_module.LONGEST_DELAY + 1
    assert [child.restart_later() for _ in range(2)] == [1.0, 1.0]
    child.terminate()
    assert child.is_over


@pytest.mark.parametrize(
    ("code", "text"),
    [(3, "exited with 3"), (0, "exited with 0"), (-11, "was ended by SIGSEGV"), (-40, "was ended by signal 40")],
)
def test_exit_codes_in_words(code, text):
    assert child_module._exit_text(code) == text
