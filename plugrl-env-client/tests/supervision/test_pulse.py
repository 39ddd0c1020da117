"""Who shows signs of life, and for how long somebody has not."""

from plugrl_env_client.client import Vital
from plugrl_env_client.supervision.pulse import Pulse


def heard(pulse, *vitals, after=1.0):
    pulse.passed(after)
    pulse.heard([Vital(*vital) for vital in vitals])


def test_who_takes_steps_lives():
    pulse = Pulse()
    for steps in range(1, 50):
        heard(pulse, (steps, True), after=100.0)
    assert (pulse.quiet, pulse.started, pulse.waits) == (0.0, True, False)
    pulse.passed(3.0)
    assert pulse.quiet == 3.0


def test_who_waits_for_the_server_may_be_quiet():
    pulse = Pulse()
    heard(pulse, (7, True))
    for _ in range(1_000):
        heard(pulse, (7, False))
    assert (pulse.quiet, pulse.waits) == (0.0, True)


def test_who_does_neither_is_quiet_whether_it_reports_or_not():
    pulse = Pulse()
    heard(pulse, (7, False))
    for _ in range(10):
        heard(pulse, (7, True))
    assert (pulse.quiet, pulse.waits) == (10.0, False)
    pulse.passed(5.0)
    assert pulse.quiet == 15.0


def test_one_group_may_hang_while_the_others_go_on():
    pulse = Pulse(3)
    for steps in range(1, 11):
        heard(pulse, (steps, True), (3, True), (0, False))
    assert (pulse.quiet, pulse.waits) == (9.0, False)


def test_a_child_has_started_when_all_groups_have():
    pulse = Pulse(2)
    pulse.heard([])
    assert not pulse.started
    heard(pulse, (4, True), (0, True))
    assert not pulse.started
    heard(pulse, (8, True), (2, True))
    assert pulse.started


def test_a_group_whose_envs_are_made_is_a_sign_of_life():
    pulse = Pulse(2)
    heard(pulse, after=60.0)
    assert pulse.quiet == 60.0
    heard(pulse, (0, False), after=60.0)
    heard(pulse, (0, False), (0, False), after=60.0)
    assert (pulse.quiet, pulse.waits) == (0.0, True)


def test_who_still_makes_envs_is_quiet_whatever_the_groups_that_are_made_do():
    pulse = Pulse(3)
    heard(pulse, (0, False))
    for _ in range(10):
        heard(pulse, (0, False))
    assert (pulse.quiet, pulse.waits, pulse.started) == (10.0, False, False)
    for _ in range(5):
        heard(pulse, (0, False), (0, False))
    assert pulse.quiet == 4.0
