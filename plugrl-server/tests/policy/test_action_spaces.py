"""Actions as an environment takes them: shape, dtype, bounds, start (lesson 17)."""

import numpy as np
import pytest
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace
from plugrl_server.policy.action_spaces import action_dim, choices, required_box, to_env_actions


def box(shape=(2,), dtype="f4", low=-1.0, high=1.0):
    return BoxSpace(shape, np.dtype(dtype), np.full(shape, low, dtype), np.full(shape, high, dtype))


@pytest.mark.parametrize(
    ("space", "dim"),
    [
        (box((2, 3)), 6),
        (DiscreteSpace(4, start=-2), 4),
        (MultiDiscreteSpace(np.array([2, 3])), 5),
        (MultiBinarySpace(3), 6),
    ],
)
def test_action_dim_counts_numbers_or_choices(space, dim):
    assert action_dim(space) == dim


def test_a_policy_for_boxes_takes_no_other_space():
    space = box((2, 3))
    assert required_box(space, 6, "some-policy") is space
    with pytest.raises(ValueError, match=r"some-policy needs a Box action space, got Discrete\(4\)"):
        required_box(DiscreteSpace(4), 4, "some-policy")
    with pytest.raises(ValueError, match="action_dim 6, this run has 5"):
        required_box(space, 5, "some-policy")


def test_choices_by_part():
    assert choices(DiscreteSpace(4)) == (4,)
    assert choices(MultiDiscreteSpace(np.array([[2, 3], [4, 5]]))) == (2, 3, 4, 5)
    assert choices(MultiBinarySpace(2)) == (2, 2)
    with pytest.raises(ValueError, match="has no choices"):
        choices(box())


def test_box_actions_are_clipped_shaped_and_cast():
    actions = to_env_actions(box((2, 1), "f8", -1, 0.1), np.array([[[-3.0, 7.0]]], np.float32))
    assert actions.shape == (1, 1, 2, 1)
    assert actions.dtype == np.float64
    assert actions.ravel().tolist() == [-1, 0.1]  # not the float32 next to 0.1


def test_unbounded_boxes_do_not_clip():
    action = np.array([[[-3e30, 7.0]]], np.float32)
    assert to_env_actions(box(low=-np.inf, high=np.inf), action).tolist() == action.tolist()


def test_integer_boxes_are_rounded_then_clipped():
    actions = to_env_actions(box((4,), "u1", 0, 255), np.array([[[-3.0, 1.6, 254.4, 1e9]]], np.float32))
    assert actions.dtype == np.uint8
    assert actions.ravel().tolist() == [0, 2, 254, 255]


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 1)])
def test_discrete_takes_both_shapes_and_adds_start(shape):
    actions = to_env_actions(DiscreteSpace(3, start=5), np.zeros(shape, np.int32))
    assert actions.shape == (3, 2)
    assert actions.dtype == np.int64
    assert (actions == 5).all()


def test_multi_spaces_take_their_shape_and_dtype():
    nvec = np.array([[2, 3], [4, 5]])
    assert to_env_actions(MultiDiscreteSpace(nvec), np.ones((1, 2, 4), np.int64)).shape == (1, 2, 2, 2)
    assert to_env_actions(MultiBinarySpace(3), np.ones((1, 2, 3), np.int64)).dtype == np.int8


def test_no_space_changes_nothing():
    action = np.zeros((1, 2, 7))
    assert to_env_actions(None, action) is action


@pytest.mark.parametrize(
    ("space", "action", "problem"),
    [
        (box((3,)), np.zeros((1, 1, 7)), r"shape \[7\], Box\(3,\) needs \[3\]"),
        (DiscreteSpace(3), np.zeros((1, 4, 2), int), r"shape \[2\], Discrete\(3\) needs \[\]"),
        (DiscreteSpace(3), np.zeros((1, 4)), "are float64, Discrete.* needs integers"),
        (DiscreteSpace(1), np.zeros(1, int), "needs"),
    ],
)
def test_actions_that_do_not_fit_are_refused(space, action, problem):
    with pytest.raises(ValueError, match=problem):
        to_env_actions(space, action)


@pytest.mark.parametrize("space", [box((1,)), box((1,), "i4", -9, 9), DiscreteSpace(3)])
def test_lesson_3_a_nan_stays_visible(space):
    action = np.full((1, 1, 1), np.nan, np.float32)
    assert np.isnan(to_env_actions(space, action)).all()
