"""Actions from the wire, field lesson 17."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from plugrl_env_client.envs.actions import ActionError, action_rule, takes_zeros
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace


def box(low, high, dtype=np.float32):
    low, high = np.array(low, dtype), np.array(high, dtype)
    return BoxSpace(shape=low.shape, dtype=low.dtype, low=low, high=high)


def test_a_box_is_clipped_and_cast_to_its_own_dtype():
    rule = action_rule(box([-1.0, 0.0], [1.0, 5.0]), "env")
    prepared = rule.prepare(np.array([[[-3.0, 9.0]], [[0.5, -1.0]]]))
    assert prepared.dtype == np.float32
    assert prepared.tolist() == [[[-1.0, 5.0]], [[0.5, 0.0]]]


def test_an_unbounded_box_clips_nothing():
    rule = action_rule(box([-np.inf], [np.inf]), "env")
    assert rule.prepare(np.full((1, 1, 1), 1e30, np.float32)).item() == np.float32(1e30)


def test_an_integer_box_rounds_and_never_wraps():
    rule = action_rule(box([0], [255], np.uint8), "env")
    assert rule.prepare(np.array([[[300.0]], [[-5.0]], [[1.6]]])).tolist() == [[[255]], [[0]], [[2]]]


@given(hnp.arrays(np.float32, (3, 2, 4), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_whatever_comes_a_box_gets_values_within_its_bounds(chunk):
    prepared = action_rule(box([-2.0] * 4, [0.5] * 4), "env").prepare(chunk)
    assert (prepared >= -2.0).all()
    assert (prepared <= 0.5).all()


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1)])
def test_discrete_accepts_both_shapes(shape):
    rule = action_rule(DiscreteSpace(n=3), "CartPole-v1")
    assert rule.prepare(np.full(shape, 2, np.int32)).tolist() == [[2] * 3] * 2


def test_discrete_accepts_whole_floats_and_keeps_its_start():
    rule = action_rule(DiscreteSpace(n=2, start=5), "env")
    prepared = rule.prepare(np.array([[5.0, 6.0]]))
    assert prepared.dtype == np.int64
    assert prepared.tolist() == [[5, 6]]


@pytest.mark.parametrize(
    ("space", "chunk", "says"),
    [
        (DiscreteSpace(n=2), np.array([[2]]), r"the action 2, env takes Discrete\(2\)"),
        (DiscreteSpace(n=2), np.array([[-1]]), "the action -1"),
        (DiscreteSpace(n=2, start=1), np.array([[0]]), "the action 0"),
        (DiscreteSpace(n=2), np.array([[0.5]]), "fractional actions"),
        (DiscreteSpace(n=2), np.zeros((1, 1, 7)), r"shape \(7,\), env takes Discrete\(2\) of shape \(\)"),
        (box([0.0], [1.0]), np.zeros((1, 1, 2)), r"shape \(2,\), env takes Box\(1,\) of shape \(1,\)"),
        (box([0.0], [1.0]), np.zeros((1, 1)), r"shape \(\), env takes Box\(1,\)"),
        (MultiDiscreteSpace(np.array([2, 3])), np.array([[[1, 3]]]), "the action 3"),
        (MultiBinarySpace(2), np.array([[[1, 2]]]), "the action 2"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(space, chunk, says):
    with pytest.raises(ActionError, match=says):
        action_rule(space, "env").prepare(chunk)


@pytest.mark.parametrize("space", [None, DiscreteSpace(n=2), box([0.0], [1.0])])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinite_actions_reach_no_env(space, value):
    with pytest.raises(ActionError, match=r"NaN or infinite action \(step 1, row 0\)"):
        action_rule(space, "env").prepare(np.array([[[0.0]], [[value]]]))


def test_multi_spaces_take_whole_numbers_in_range():
    assert action_rule(MultiDiscreteSpace(np.array([2, 3])), "e").prepare(np.array([[[1, 2]]])).tolist() == [[[1, 2]]]
    assert action_rule(MultiBinarySpace(2), "e").prepare(np.array([[[True, False]]])).tolist() == [[[1, 0]]]


def test_without_a_declared_space_everything_finite_passes():
    chunk = np.arange(28.0).reshape(4, 1, 7)
    assert action_rule(None, "dummy-v1").prepare(chunk) is chunk


def test_zeros_stand_still_only_where_a_box_has_them():
    def box(low, high):
        return BoxSpace(shape=(2,), dtype=np.float32, low=np.full(2, low), high=np.full(2, high))

    assert takes_zeros(None)
    assert takes_zeros(box(-1.0, 1.0))
    assert takes_zeros(box(0.0, 1.0))
    assert not takes_zeros(box(0.5, 1.0))
    assert not takes_zeros(box(-2.0, -1.0))
    assert not takes_zeros(DiscreteSpace(n=3))
