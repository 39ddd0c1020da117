"""Each symptom is told once, with its remedy, and only where it shows."""

import copy
import dataclasses
from types import SimpleNamespace

import pytest
from plugrl_server.algorithm.registration import list_algos
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.policy.registration import list_policies
from plugrl_server.training import symptoms
from plugrl_server.training.symptoms import Symptoms, drifted_counters, duplicate_flags


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


@dataclasses.dataclass
class One:
    gamma: float = 0.9
    save_interval: int = 1


@dataclasses.dataclass
class Other:
    save_interval: int = 1
    width: int = 2


def test_an_option_of_both_sides_is_named():
    [text] = duplicate_flags(One(), Other())
    assert text.startswith("--algo.save-interval and --policy.save-interval")
    assert "keep one" in text
    assert duplicate_flags(One(), SimpleNamespace(gamma=1)) == []


def test_no_pair_of_built_ins_has_duplicate_flags():
    policies = {uid: next(iter(variants.values()))() for uid, variants in list_policies().items()}
    for uid, variants in list_algos().items():
        accepted = getattr(next(iter(variants.values())), "policies", None)
        for policy, config in policies.items():
            if accepted is None or policy in accepted:
                assert duplicate_flags(config, next(iter(variants.values()))()) == [], (uid, policy)


class Saver:
    """Counts iterations; restores what it is told to."""

    def __init__(self, restores=("iteration", "saved", "nested")):
        self.restores = restores
        self.step, self.iteration, self.saved, self.nested = 100, 5, 4, {"updates": 7}

    def should_save(self):
        return self.iteration - self.saved >= 2

    def create_checkpoint(self):
        self.saved = self.iteration
        counters = {"iteration": self.iteration, "saved": self.saved, "nested": copy.deepcopy(self.nested)}
        return Checkpoint(step=self.step, meta={**counters, "rng": {"state": id(self)}, "nothing": float("nan")})

    def load_checkpoint(self, checkpoint):
        self.step = checkpoint.step
        for name in self.restores:
            setattr(self, name, checkpoint.meta[name])


def restored(**options):
    before = Saver()
    before.step, before.iteration, before.nested = 250, 12, {"updates": 90}
    checkpoint = before.create_checkpoint()
    after = Saver(**options)
    after.load_checkpoint(checkpoint)
    return after, checkpoint


def test_restored_counters_do_not_drift_and_are_left_alone():
    after, checkpoint = restored()
    after.saved = 11
    assert drifted_counters(after, checkpoint) is None
    assert after.saved == 11


def test_a_counter_that_was_not_restored_is_named_with_both_values():
    text = drifted_counters(*restored(restores=("iteration", "saved")))
    assert "nested.updates is 7, was 90" in text
    assert "iteration" not in text
    assert "Checkpoint.meta" in text


def test_a_schedule_that_wants_to_save_at_once_is_told():
    assert "should_save() is true" in drifted_counters(*restored(restores=("iteration", "nested")))


def test_a_global_step_that_was_not_restored_is_told():
    after, checkpoint = restored()
    after.step = 0
    assert "step is 0, was 250" in drifted_counters(after, checkpoint)
