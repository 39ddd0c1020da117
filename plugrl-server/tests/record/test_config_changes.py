"""Flags that differ from a recorded run's."""

import dataclasses

from plugrl_server.record.config_changes import changes, run_changes
from plugrl_server.record.run_record import Part


@dataclasses.dataclass
class Inner:
    wide: bool = False


@dataclasses.dataclass
class Config:
    gamma: float = 0.99
    hidden_sizes: tuple[int, ...] = (64, 64)
    inner: Inner = dataclasses.field(default_factory=Inner)
    new_since: int = 3


def recorded(**values):
    return Part("ppo", "default", None, None, values)


def test_equal_values_are_no_change_and_unrecorded_ones_are_not_compared():
    same = recorded(gamma=0.99, hidden_sizes=[64, 64], inner={"wide": False}, gone=1)
    assert changes(same, Config(), "algo") == []


def test_changes_are_named_as_flags_with_both_values():
    before = recorded(gamma=0.9, hidden_sizes=[32, 32], inner={"wide": True})
    assert changes(before, Config(), "policy") == [
        "--policy.gamma 0.99 (was 0.9)",
        "--policy.hidden-sizes 64 64 (was 32 32)",
        "--policy.inner.wide False (was True)",
    ]


def test_of_the_runs_own_flags_those_that_a_resumed_run_keeps_are_compared():
    before = {"keep_checkpoints": 2, "port": 1, "track": {"project": "plugrl", "offline": False}}
    now = {"keep_checkpoints": 3, "track": {"project": "mine", "offline": False}, "new_since": 1}
    assert run_changes(before, now) == ["--keep-checkpoints 3 (was 2)", "--track.project mine (was plugrl)"]
