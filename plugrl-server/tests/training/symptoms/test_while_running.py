"""Each symptom is told once, with its remedy, and only where it shows."""

import pytest
from plugrl_server.training.symptoms import while_running as symptoms
from plugrl_server.training.symptoms.while_running import Symptoms


@pytest.fixture
def seen():
    return Symptoms()


def test_a_text_is_told_once(seen):
    seen.tell("this")
    seen.tell("this")
    assert seen.drain() == ["this"]
    seen.tell("this")
    assert seen.drain() == []


def test_learning_without_inference_is_told_after_many_steps(seen):
    for _ in range(symptoms.LEARNS_IN_A_ROW - 1):
        seen.learned(0.01, 0)
    assert seen.drain() == []
    seen.learned(0.01, 0)
    assert seen.drain() == [symptoms.LEARNS_ON]
    assert "should_learn() is still true after learn()" in symptoms.LEARNS_ON


def test_an_inference_ends_a_row_of_learn_steps(seen):
    for step in range(3 * symptoms.LEARNS_IN_A_ROW):
        seen.learned(10.0, 0)
        if step % 10 == 0:
            seen.learns_in_a_row = 0
    assert seen.drain() == []


@pytest.mark.parametrize(("seconds", "told"), [(2.9, []), (3.1, [symptoms.LEARNS_ON])])
def test_slow_learn_steps_are_told_of_sooner(seen, seconds, told):
    for _ in range(symptoms.SLOW_LEARNS_IN_A_ROW):
        seen.learned(seconds, 0)
    assert seen.drain() == told


def test_a_checkpoint_that_leaves_should_save_true_is_told(seen):
    seen.saved(wants_more=False)
    assert seen.drain() == []
    seen.saved(wants_more=True)
    assert seen.drain() == [symptoms.SAVES_ON]


def test_episodes_that_feedback_never_records_are_told_at_the_next_learn_step(seen):
    seen.stored_episodes(1, recorded=0)
    assert seen.drain() == []
    seen.learned(0.0, recorded=0)
    assert seen.drain() == [symptoms.ROLLOUT_ZERO]


def test_an_algorithm_may_record_its_episodes_in_the_learn_step(seen):
    seen.stored_episodes(3, recorded=0)
    seen.learned(0.0, recorded=3)
    assert seen.drain() == []


def test_without_learn_steps_many_episodes_tell(seen):
    seen.stored_episodes(symptoms.EPISODES_WITHOUT_RECORD - 1, recorded=0)
    assert seen.drain() == []
    seen.stored_episodes(1, recorded=0)
    assert seen.drain() == [symptoms.ROLLOUT_ZERO]


def test_what_discarded_frames_record_does_not_hide_that_feedback_records_nothing(seen):
    seen.discarded_episodes(2, newly_recorded=2)
    seen.stored_episodes(1, recorded=2)
    seen.learned(0.0, recorded=2)
    assert seen.drain() == [symptoms.ROLLOUT_ZERO]


def test_discarded_episodes_that_are_not_recorded_are_told(seen):
    seen.discarded_episodes(0, newly_recorded=0)
    assert seen.drain() == []
    seen.discarded_episodes(1, newly_recorded=0)
    assert seen.drain() == [symptoms.ROLLOUT_PART]
    assert "super()" in symptoms.ROLLOUT_PART


def test_an_episode_without_figures_is_nobodys_mistake(seen):
    for _ in range(200):
        seen.stored_episodes(0, recorded=0)
        seen.discarded_episodes(0, newly_recorded=0)
    seen.learned(0.0, recorded=0)
    assert seen.drain() == []
