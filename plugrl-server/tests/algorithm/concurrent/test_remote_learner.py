"""A learner in a process of its own against the same learner here."""

import functools
import os

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.concurrent import remote_learner
from plugrl_server.algorithm.concurrent.learner import load_whole_state, whole_state
from plugrl_server.algorithm.concurrent.remote_learner import LearnerError, RemoteLearner
from plugrl_server.learning import trees
from toy_learner import ToyLearner, build_and_publish_always, frames

SIZES = {"size": 200_000, "capacity": 20}


def start():
    return RemoteLearner(ToyLearner(**SIZES), functools.partial(build_and_publish_always, **SIZES))


@pytest.fixture(scope="module")
def process():
    """One learner for all the tests that leave it alive: a process takes seconds to import torch."""
    remote = start()
    yield remote
    pid = remote.process.pid
    assert is_alive(pid)
    remote.close()
    assert not is_alive(pid)


@pytest.fixture
def remote(process):
    """The learner, as good as new."""
    become(process, whole_state(ToyLearner(**SIZES)))
    return process


def become(remote, state):
    remote.policy.load_state_dict(state["policy"])
    remote.load_optimizer_state(state["optimizer"])
    remote.load_state_dict(state["learner"])


def is_alive(pid):
    """Whether there is such a process, be it a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def play(learner, rounds, first=0):
    """Give frames of three environments and updates, 2 each round, with nodes as the server hands them back."""
    nodes = None
    for i in range(first, first + rounds):
        nodes = learner.add(**frames([i, i + 0.25, i + 0.5], nodes))
        learner.update(2)
    return nodes


def assert_same(state, other):
    def same(leaf, theirs):
        np.testing.assert_array_equal(np.asarray(leaf), np.asarray(theirs))

    trees.map_leaves(same, state, other)


def state_of(remote):
    learner = remote.state_dict()
    return {"policy": remote.policy.state_dict(), "optimizer": remote.optimizer_state(), "learner": learner}


def test_it_becomes_what_it_would_have_become_here(remote):
    local = ToyLearner(**SIZES)
    assert play(local, 30) == play(remote, 30)
    assert_same(state_of(remote), whole_state(local))
    assert remote.updates == 60
    assert remote.behind == 0


def test_states_go_from_one_to_the_other_and_back(remote):
    local = ToyLearner(**SIZES, seed=5)
    play(local, 8)
    play(remote, 1)
    become(remote, whole_state(local))
    assert (remote.updates, remote.behind) == (16, 0)
    assert_same(state_of(remote), whole_state(local))
    play(local, 8, first=8)
    play(remote, 8, first=8)
    assert_same(state_of(remote), whole_state(local))
    back = ToyLearner(**SIZES)
    load_whole_state(back, state_of(remote))
    assert_same(whole_state(back), whole_state(local))


def test_a_state_that_does_not_fit_is_refused_and_the_learner_goes_on(remote):
    other = ToyLearner(capacity=50)
    other.add(**frames(range(30)))
    with pytest.raises(ValueError, match="30 frames of 30 were stored; this buffer holds 20"):
        remote.load_state_dict(other.state_dict())
    play(remote, 1)
    assert state_of(remote)["learner"]["updates"] == 2


def test_weights_are_whole_and_only_get_newer(remote):
    remote.add(**frames([1.0]))
    seen = [0.0]
    for _ in range(600):
        remote.update(2)
        remote.meet()
        weights = remote.policy.weights
        low, high = float(weights.min()), float(weights.max())
        assert low == high == int(remote.policy.count)
        assert seen[-1] <= low <= remote.updates
        seen.append(low)
    assert len(set(seen)) > 5  # it ran meanwhile
    remote.catch_up()
    assert (remote.policy.weights == 1200).all()


def test_metrics_are_means_over_all_updates_and_say_how_far_behind_it_is(remote):
    remote.add(**frames([1.0]))
    for _ in range(10):
        remote.update(4)
    remote.catch_up()
    assert remote.metrics() == {"losses/mean_update": pytest.approx(20.5), "time/updates_behind": 0.0}
    assert remote.metrics() == {"time/updates_behind": 0.0}


def test_catching_up_can_be_given_up(remote):
    remote.add(**frames([1.0]))
    remote.update(200)
    remote.catch_up(seconds=0)
    assert remote.behind + remote.updates == 200
    remote.catch_up()
    assert (remote.behind, remote.updates) == (0, 200)
    assert (remote.policy.weights == 200).all()


def test_one_waits_for_a_learner_that_is_too_far_behind(remote, monkeypatch):
    monkeypatch.setattr(remote_learner, "MAX_BEHIND", 5)
    remote.add(**frames([1.0]))
    for _ in range(40):
        remote.update(30)
        assert remote.has_news or remote.behind <= 5
        remote.meet()
        assert remote.behind <= 5
    assert remote.updates >= 1195


def test_one_waits_while_too_many_bytes_are_under_way(remote, monkeypatch):
    monkeypatch.setattr(remote_learner, "MAX_BYTES", 0)
    remote.add(**frames([1.0]))
    remote.meet()
    remote.update(1)
    remote.meet()
    assert remote.behind == 0


def test_waiting_ends_after_the_time_that_was_given(remote, monkeypatch):
    monkeypatch.setattr(remote_learner, "MAX_BEHIND", -1)
    remote.meet(seconds=0.05)
    assert remote.has_news  # it is still too far behind


def test_newer_weights_are_news_until_they_are_taken_over(remote):
    assert not remote.has_news
    remote.add(**frames([1.0]))
    remote.update(3)
    remote._order("publish", None)
    remote._wait_for("published")
    assert remote.has_news
    remote.meet()
    assert not remote.has_news
    assert (remote.policy.weights == 3).all()


def test_it_uses_as_many_threads_as_the_server(remote):
    asked = []
    order = remote._order
    before = torch.get_num_threads()
    try:
        remote._order = lambda *what: asked.append(what) or order(*what)
        torch.set_num_threads(3)
        play(remote, 2)
        torch.set_num_threads(1)
        play(remote, 1)
        remote.catch_up()
    finally:
        torch.set_num_threads(before)
        del remote._order
    assert [what for what in asked if what[0] == "threads"] == [("threads", 3), ("threads", 1)]


@pytest.mark.parametrize("number", sorted(remote_learner.SIGNALS))
def test_signals_to_the_process_group_are_for_the_server(remote, number):
    os.kill(remote.process.pid, number)
    play(remote, 3)
    assert state_of(remote)["learner"]["updates"] == 6


def test_how_a_learner_ended_is_told_by_every_call():
    remote = start()
    pid = remote.process.pid
    remote.add(**frames([1000.0]))
    remote.update(1)
    for call in (remote.state_dict, remote.catch_up, lambda: remote.add(**frames([1.0]))):
        with pytest.raises(LearnerError, match="the learner process ended with exit code 7"):
            call()
    remote.close()
    assert not is_alive(pid)


def test_the_error_of_a_learner_is_told_and_its_process_goes_with_it():
    remote = start()
    pid = remote.process.pid
    remote.add(**frames([-2.0]))
    remote.update(1)
    with pytest.raises(LearnerError, match=r"in the learner process: ZeroDivisionError: a reward of -2.0 \(toy_learn"):
        remote.catch_up()
    del remote  # nobody closes it
    assert not is_alive(pid)


@pytest.mark.parametrize(("code", "said"), [(None, "closed its channel"), (-9, "was ended by SIGKILL"), (3, "code 3")])
def test_how_a_process_ended(code, said):
    class Process:
        exitcode = code

        def join(self, seconds):
            pass

    assert said in remote_learner._how_it_ended(Process())
