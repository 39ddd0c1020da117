"""The actions of watch mode."""

import numpy as np
import pytest
from plugrl_protocol.conformance.client_scenarios.actions import plain_actions, space_actions
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace


def test_shape_and_dtype_are_those_asked_for():
    assert plain_actions(4, 2, 7, np.dtype(np.float32)).shape == (4, 2, 7)
    assert plain_actions(4, 2, 0, np.dtype(np.int64)).shape == (4, 2)
    assert plain_actions(4, 2, 7, np.dtype(np.float16)).dtype == np.float16
    assert np.abs(plain_actions(50, 1, 1, np.dtype(np.float64))).max() <= 0.5
    assert set(plain_actions(4, 1, 1, np.dtype(np.uint8)).ravel().tolist()) == {0, 1}


@pytest.mark.parametrize(
    "space",
    [
        BoxSpace((2,), np.dtype(np.float32), np.array([1.0, -3.0], np.float32), np.array([2.0, -2.5], np.float32)),
        BoxSpace((2, 2), np.dtype(np.float64), np.full((2, 2), -np.inf), np.full((2, 2), np.inf)),
        BoxSpace((1,), np.dtype(np.int8), np.array([5], np.int8), np.array([9], np.int8)),
    ],
)
def test_boxes_are_kept(space):
    action = space_actions(5, 3, space)

    assert action.shape == (5, 3, *space.shape)
    assert action.dtype == space.dtype
    assert np.isfinite(action).all()
    assert ((action >= space.low) & (action <= space.high)).all()


def test_choices_are_kept_and_all_made():
    assert set(space_actions(7, 2, DiscreteSpace(3, start=-1)).ravel().tolist()) == {-1, 0, 1}
    many = space_actions(7, 2, MultiDiscreteSpace(np.array([2, 3])))
    assert many.shape == (7, 2, 2)
    assert many.max(axis=(0, 1)).tolist() == [1, 2]
    binary = space_actions(7, 2, MultiBinarySpace(4))
    assert binary.shape == (7, 2, 4)
    assert binary.dtype == np.int8
    assert set(binary.ravel().tolist()) == {0, 1}
