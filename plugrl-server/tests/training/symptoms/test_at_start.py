"""What is wrong before the first frame is named, with both values."""

import copy
import dataclasses
from types import SimpleNamespace

from plugrl_server.algorithm.registration import list_algos
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.policy.registration import list_policies
from plugrl_server.training.symptoms.at_start import drifted_counters, duplicate_flags


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
