"""In which order the run takes what its clients send."""

from types import SimpleNamespace

import numpy as np
from plugrl_server.serving.batcher import Batcher, Request
from plugrl_server.serving.intake import Continuous, Rounds


class Numbered:
    def __init__(self, number):
        self.client_number = number


session = Numbered


def request(session, layout="a"):
    return Request(session, np.array([0]), {"text": np.array([str(session.client_number)])}, layout, 0.0)


def report(session):
    return SimpleNamespace(session=session)


def numbers(things):
    return [thing.session.client_number for thing in things]


def reports_of(intake, live):
    found = []
    while (each := intake.next_report(live)) is not None:
        found.append(each)
    return numbers(found)


def batch_of(intake, live):
    batch = intake.next_batch(0.0, live)
    return None if batch is None else numbers(batch.requests)


def test_continuous_takes_feedback_in_arrival_order():
    a, b = session(1), session(2)
    intake = Continuous(Batcher())
    for each in (b, a, b):
        intake.report(report(each))
    intake.request(request(a))
    assert reports_of(intake, {a, b}) == [2, 1, 2]
    assert batch_of(intake, {a, b}) == [1]


def test_continuous_forgets_requests_but_not_feedback_of_who_has_gone():
    a, b = session(1), session(2)
    intake = Continuous(Batcher())
    intake.report(report(a))
    intake.request(request(a))
    intake.leave(a)
    assert reports_of(intake, {b}) == [1]
    assert batch_of(intake, {b}) is None


def test_what_was_never_recorded_can_be_dropped():
    a = session(1)
    for intake in (Continuous(Batcher()), Rounds(1)):
        intake.report(report(a))
        assert numbers(intake.drop()) == [1]
        assert intake.drop() == []


def test_the_first_round_waits_for_all_connections():
    a, b = session(1), session(2)
    intake = Rounds(2)
    intake.request(request(b))
    assert intake.next_report({b}) is None
    assert batch_of(intake, {b}) is None
    intake.request(request(a))
    assert reports_of(intake, {a, b}) == []
    assert batch_of(intake, {a, b}) == [1, 2]


def test_a_round_takes_all_feedback_and_then_all_requests_in_client_order():
    a, b = session(1), session(2)
    intake = Rounds(2)
    for first, second in ((a, b), (b, a)):
        intake.request(request(second))
        intake.request(request(first))
        intake.next_report({a, b})
        assert batch_of(intake, {a, b}) == [1, 2]
        intake.report(report(second))
        intake.request(request(second))
        assert intake.next_report({a, b}) is None  # the other one is not there yet
        intake.report(report(first))
        intake.request(request(first))
        assert reports_of(intake, {a, b}) == [1, 2]
        assert batch_of(intake, {a, b}) == [1, 2]


def test_a_round_goes_on_without_those_who_left():
    a, b = session(1), session(2)
    intake = Rounds(2)
    intake.request(request(a))
    intake.request(request(b))
    intake.next_report({a, b})
    batch_of(intake, {a, b})
    intake.report(report(a))
    intake.request(request(a))
    intake.report(report(b))
    intake.leave(b)
    assert reports_of(intake, {a}) == [1, 2]
    assert batch_of(intake, {a}) == [1]


def test_the_last_feedback_is_taken_when_all_have_left():
    a = session(1)
    intake = Rounds(1)
    intake.request(request(a))
    intake.next_report({a})
    batch_of(intake, {a})
    intake.report(report(a))
    intake.leave(a)
    assert reports_of(intake, set()) == [1]


def test_one_round_has_a_batch_for_each_layout():
    a, b, c = session(1), session(2), session(3)
    intake = Rounds(3)
    for each, layout in ((c, "x"), (a, "x"), (b, "y")):
        intake.request(request(each, layout))
    intake.next_report({a, b, c})
    assert batch_of(intake, {a, b, c}) == [1, 3]
    assert batch_of(intake, {a, b, c}) == [2]
    assert batch_of(intake, {a, b, c}) is None
