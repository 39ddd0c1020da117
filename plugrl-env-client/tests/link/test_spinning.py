import pytest
from plugrl_env_client.link import spinning
from plugrl_env_client.link.spinning import AUTO_SECONDS, LOST_SECONDS, REST_SECONDS, Spinning


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(spinning, "spare_cores", lambda: True)


@pytest.mark.parametrize("longest", [0.0, 0.25])
def test_a_fixed_time_is_granted_whatever_happens(longest):
    granter = Spinning(longest)
    for _ in range(20):
        granter.waited(100.0)
    assert granter.granted(0.0) == longest


def test_left_to_itself_it_grants_time_while_answers_come_soon():
    granter = Spinning(None)
    assert granter.granted(0.0) == AUTO_SECONDS
    for _ in range(20):
        granter.waited(AUTO_SECONDS / 2)
    assert granter.granted(0.0) == AUTO_SECONDS


def test_slow_answers_end_it_and_soon_ones_begin_it_again():
    granter = Spinning(None)
    granter.waited(60.0)  # a learn step: one long wait is soon forgotten
    assert granter.granted(0.0) == 0.0
    for _ in range(10):
        granter.waited(AUTO_SECONDS / 2)
    assert granter.granted(0.0) == AUTO_SECONDS
    for _ in range(10):
        granter.waited(2 * AUTO_SECONDS)
    assert granter.granted(0.0) == 0.0


def test_it_rests_when_others_want_this_core():
    granter = Spinning(None)
    granter.asked(5.0, 5.0 + LOST_SECONDS / 2)
    assert granter.granted(5.0) == AUTO_SECONDS
    granter.asked(5.0, 5.0 + 2 * LOST_SECONDS)
    assert granter.granted(5.1) == 0.0
    assert granter.granted(5.0 + 2 * REST_SECONDS) == AUTO_SECONDS


def test_one_core_is_never_spun_on(monkeypatch):
    monkeypatch.setattr(spinning, "spare_cores", lambda: False)
    assert Spinning(None).granted(0.0) == 0.0


def test_the_cores_of_this_process_are_counted(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(spinning.os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert not spinning.spare_cores()
    monkeypatch.setattr(spinning.os, "sched_getaffinity", lambda _: {1, 3}, raising=False)
    assert spinning.spare_cores()
    monkeypatch.delattr(spinning.os, "sched_getaffinity")
    monkeypatch.setattr(spinning.os, "cpu_count", lambda: None)
    assert not spinning.spare_cores()
