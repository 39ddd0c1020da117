"""Advantages and returns by hand: each frame's own outcome counts, and truncation is not death (rules 1 and 2)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_server.learning.returns import discounted_sums, gae

GAMMA, LAMBDA = 0.9, 0.8


def column(*values, dtype=np.float32):
    return np.array(values, dtype)[:, None]


def flags(*values):
    return column(*values, dtype=bool)


def advantages(rewards, values, next_values, terminated, cut):
    found, returns = gae(rewards, values, next_values, terminated, cut, GAMMA, LAMBDA)
    np.testing.assert_allclose(returns, found + values, rtol=1e-6)
    return found[:, 0].tolist()


def test_one_terminated_frame_is_worth_its_reward():
    found = advantages(column(2), column(0.5), column(100), flags(True), flags(True))
    assert found == pytest.approx([2 - 0.5])


def test_one_truncated_frame_bootstraps_with_the_value_of_its_final_observation():
    found = advantages(column(2), column(0.5), column(3), flags(False), flags(True))
    assert found == pytest.approx([2 + GAMMA * 3 - 0.5])


def test_the_end_of_the_buffer_bootstraps_like_a_truncation():
    found = advantages(column(1, 2), column(0.5, 0.25), column(0.25, 4), flags(False, False), flags(False, False))
    last = 2 + GAMMA * 4 - 0.25
    assert found == pytest.approx([1 + GAMMA * 0.25 - 0.5 + GAMMA * LAMBDA * last, last])


def test_rule_1_nothing_crosses_the_end_of_an_episode_and_none_is_cut_one_step_late():
    """Three frames; the middle one terminates. The first sees the second, neither sees the third."""
    found = advantages(
        column(1, 2, 10), column(0.5, 0.25, 7), column(0.25, 7, 0), flags(False, True, True), flags(False, True, True)
    )
    second = 2 - 0.25
    assert found == pytest.approx([1 + GAMMA * 0.25 - 0.5 + GAMMA * LAMBDA * second, second, 10 - 7])


def test_rule_2_a_truncated_frame_in_the_middle_bootstraps_and_cuts():
    found = advantages(
        column(1, 2, 10), column(0.5, 0.25, 7), column(0.25, 3, 0), flags(False, False, True), flags(False, True, True)
    )
    second = 2 + GAMMA * 3 - 0.25
    assert found == pytest.approx([1 + GAMMA * 0.25 - 0.5 + GAMMA * LAMBDA * second, second, 10 - 7])


def test_lambda_one_gives_discounted_returns():
    rewards, values = column(1, 2, 3), column(9, 9, 9)
    _, returns = gae(rewards, values, column(9, 9, 0), flags(False, False, True), flags(False, False, True), GAMMA, 1.0)
    assert returns[:, 0].tolist() == pytest.approx([1 + GAMMA * (2 + GAMMA * 3), 2 + GAMMA * 3, 3], rel=1e-6)


def literal_gae(rewards, values, next_values, terminated, cut):
    found = np.zeros_like(rewards, np.float64)
    for e in range(rewards.shape[1]):
        carried = 0.0
        for t in reversed(range(len(rewards))):
            bootstrap = 0.0 if terminated[t, e] else next_values[t, e]
            delta = rewards[t, e] + GAMMA * bootstrap - values[t, e]
            carried = delta + (0.0 if cut[t, e] else GAMMA * LAMBDA * carried)
            found[t, e] = carried
    return found


@given(st.integers(0, 12), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_the_scan_is_the_literal_loop(steps, columns, seed):
    rng = np.random.default_rng(seed)
    rewards, values, next_values = rng.standard_normal((3, steps, columns)).astype(np.float32)
    terminated = rng.random((steps, columns)) < 0.2
    cut = terminated | (rng.random((steps, columns)) < 0.2)
    found, _ = gae(rewards, values, next_values, terminated, cut, GAMMA, LAMBDA)
    np.testing.assert_allclose(found, literal_gae(rewards, values, next_values, terminated, cut), atol=1e-4)


def test_inputs_are_left_alone():
    rewards, values = np.ones((4, 2), np.float32), np.ones((4, 2), np.float32)
    none = np.zeros((4, 2), bool)
    gae(rewards, values, values, none, none, GAMMA, LAMBDA)
    discounted_sums(rewards, none, np.zeros_like(rewards), GAMMA)
    assert (rewards == 1).all()
    assert (values == 1).all()


def test_rule_5_the_discounted_sum_restarts_at_every_episode_start():
    sums = discounted_sums(column(1, 2, 4, 8), flags(False, True, False, False), column(0, 0, 0, 0), GAMMA)
    assert sums[:, 0].tolist() == pytest.approx([1, 2 + GAMMA, 4, 8 + GAMMA * 4])


def test_the_discounted_sum_goes_on_from_the_iteration_before():
    sums = discounted_sums(column(1, 2), flags(False, False), column(10, 0), GAMMA)
    assert sums[:, 0].tolist() == pytest.approx([1 + GAMMA * 10, 2 + GAMMA * (1 + GAMMA * 10)])


def test_columns_do_not_touch_each_other():
    rewards = np.array([[1, 5], [2, 6]], np.float32)
    sums = discounted_sums(rewards, np.zeros((2, 2), bool), np.zeros((2, 2), np.float32), 0.5)
    assert sums.tolist() == [[1, 5], [2.5, 8.5]]
