"""The learner process, played through in this one."""

import functools
import multiprocessing
import threading

import pytest
from plugrl_server.algorithm.concurrent import channel, learner_process
from plugrl_server.algorithm.concurrent.board import HANDLED, UPDATES, Board
from plugrl_server.algorithm.concurrent.learner import whole_state
from toy_learner import ToyLearner, frames


class Server:
    """The server's side: orders are given first, then the process runs until it fails."""

    def __init__(self, build=ToyLearner):
        context = multiprocessing.get_context("spawn")
        self.board = Board(context, ToyLearner().policy.state_dict())
        self.theirs, self.orders = context.Pipe(duplex=False)
        self.answers, self.to_us = context.Pipe(duplex=False)
        self.build = build
        self.sent = 0

    def order(self, order, what=None):
        self.sent += channel.send(self.orders, (order, what))

    def run(self):
        """Let it obey everything; an order that cannot be obeyed comes last, and returns what it answered."""
        self.order("add", {"nonsense": 1})
        with pytest.raises(SystemExit, match="1"):
            learner_process.run(self.build, self.board, self.theirs, self.to_us)
        answers = []
        while self.answers.poll():
            answers.append(channel.receive(self.answers)[0])
        return answers


@pytest.fixture
def ended(monkeypatch):
    """Set when the process would have ended at once."""
    event = threading.Event()
    monkeypatch.setattr(learner_process.os, "_exit", lambda code: event.set())
    return event


@pytest.fixture
def make_server(ended):
    """Make servers, whose channels are closed afterwards."""
    made = []

    def make(build=ToyLearner):
        made.append(Server(build))
        return made[-1]

    yield make
    for server in made:
        server.orders.close()
    for reader in (thread for thread in threading.enumerate() if thread.name == "orders"):
        reader.join(10)  # before os._exit is what it was
        assert not reader.is_alive()
    for server in made:
        for end in (server.theirs, server.answers, server.to_us):
            end.close()


def test_orders_are_obeyed_one_after_the_other(make_server):
    server, local = make_server(), ToyLearner()
    server.order("add", frames([1, 2, 3]))
    server.order("update", 5)
    server.order("state")
    server.order("update", 2)
    answers = server.run()
    local.add(**frames([1, 2, 3]))
    local.update(5)
    state = next(what for kind, what in answers if kind == "state")
    assert state["learner"]["rng"] == local.rng.bit_generator.state
    assert float(state["optimizer"]["total"]) == float(local.total)
    assert server.board.counters[UPDATES] == 7


def test_the_size_of_what_was_obeyed_is_counted(make_server):
    server = make_server()
    server.order("add", frames([1, 2, 3]))
    server.order("update", 1)
    obeyed = server.sent
    server.run()
    assert server.board.counters[HANDLED] == obeyed


def test_weights_are_published_when_the_interval_has_passed(make_server, monkeypatch):
    monkeypatch.setattr(learner_process, "PUBLISH_INTERVAL", 0.0)
    server = make_server()
    server.order("add", frames([1]))
    server.order("update", 3)
    answers = server.run()
    assert [answer for answer in answers if answer[0] == "report"] == [
        ("report", (1, {"losses/mean_update": float(n)})) for n in (1, 2, 3)
    ]
    assert server.board.version == 3
    assert (server.board.weights["weights"] == 3).all()


def test_updates_between_two_publications_are_reported_together(make_server, monkeypatch):
    monkeypatch.setattr(learner_process, "PUBLISH_INTERVAL", 1e9)
    server = make_server()
    server.order("add", frames([1]))
    server.order("update", 1)  # nothing was published before, so this is at once
    server.order("update", 3)
    server.order("publish")
    server.order("publish")
    answers = server.run()[:-1]
    assert answers == [
        ("report", (1, {"losses/mean_update": 1.0})),
        ("report", (3, {"losses/mean_update": 3.0})),
        ("published", None),
        ("published", None),
    ]


def test_a_state_is_loaded_or_refused(make_server):
    server, other = make_server(functools.partial(ToyLearner, capacity=5)), ToyLearner()
    other.add(**frames([4, 4, 4, 4]))
    other.update(9)
    server.order("load", whole_state(other))
    other.add(**frames([4, 4, 4, 4]))
    server.order("load", whole_state(other))
    answers = server.run()
    assert answers[0] == ("loaded", None)
    assert answers[1] == ("refused", "8 frames of 8 were stored; this buffer holds 5.")
    assert server.board.counters[UPDATES] == 9


def test_an_error_is_answered_with_its_place(make_server):
    server = make_server()
    server.order("add", frames([-1]))
    server.order("update", 1)
    assert server.run()[-1][1].startswith("ZeroDivisionError: a reward of -1.0 (toy_learner.py, line ")
    server = make_server(functools.partial(ToyLearner, width=3))
    assert "unexpected keyword argument 'width'" in server.run()[-1][1]


def test_it_ends_at_once_when_the_server_is_gone(make_server, ended):
    server = make_server()
    server.orders.close()
    server.build().replay.add(**frames([1]))
    process = learner_process.LearnerProcess(ToyLearner(), server.board, server.theirs, server.to_us)
    threading.Thread(target=process.serve, daemon=True).start()
    assert ended.wait(10)
