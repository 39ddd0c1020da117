"""How far chunks ran."""

import numpy as np
import pytest
from plugrl_server.algorithm.base_algorithm import NO_NODE, FeedbackRows
from plugrl_server.algorithm.on_policy.executed_steps import executed_of, steps_before_the_end


@pytest.mark.parametrize(
    ("info", "steps"),
    [
        ({"episode": {"l": 9}}, 1),
        ({"episode": {"l": np.array([12])}}, 4),
        ({"episode": {"l": 2, "mask": True}}, 2),
        ({"episode": {"l": 9, "mask": False}}, 4),
        ({"episode": {"r": 1.0}}, 4),
        ({}, 4),
    ],
)
def test_an_episode_s_length_tells_how_far_its_last_chunk_ran(info, steps):
    assert steps_before_the_end(info, 4) == steps


def test_only_rows_whose_episode_ended_are_cut_short():
    no = np.zeros(4, bool)
    rows = FeedbackRows(
        obs=None,
        runtime_state=None,
        train_state=None,
        terminated=no,
        truncated=no,
        next_obs=None,
        reward=np.zeros(4, np.float32),
        info=[{"episode": {"l": 6}}, {"episode": {"l": 5}}, {"episode": {"l": 6}}, {}],
        next_terminated=np.array([True, False, False, True]),
        next_truncated=np.array([False, True, False, False]),
        nodes=[NO_NODE] * 4,
    )
    assert executed_of(rows, 4).tolist() == [2, 1, 4, 4]
