"""The map between a Box and [-1, 1]."""

import numpy as np
import pytest
from plugrl_protocol.spaces import BoxSpace
from plugrl_server.policy.denoising.action_bounds import ActionBounds


def box(low, high):
    low, high = np.array(low, np.float32), np.array(high, np.float32)
    return BoxSpace(shape=low.shape, dtype=low.dtype, low=low, high=high)


def test_bounds_are_minus_one_and_one():
    bounds = ActionBounds(box([-2, 0], [2, 10]), 2)
    assert bounds.denormalize(np.float32([[-1, -1], [1, 1], [0, 0.5]])).tolist() == [[-2, 0], [2, 10], [0, 7.5]]
    assert bounds.denormalize(np.zeros((3, 4, 2), np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("low", "high"), [(-np.inf, np.inf), (0, np.inf), (-np.inf, 0), (-3e38, 3e38), (2, 2)], ids=str
)
def test_numbers_without_two_usable_bounds_pass_as_they_are(low, high):
    bounds = ActionBounds(box([low, -2], [high, 2]), 2)
    assert bounds.denormalize(np.float32([[5, 1]])).tolist() == [[5, 2]]
    assert bounds.normalize(np.float32([[5, 2]])).tolist() == [[5, 1]]


def test_without_a_declaration_everything_passes():
    assert ActionBounds(None, 2).denormalize(np.float32([[3, -4]])).tolist() == [[3, -4]]


def test_normalize_is_the_inverse():
    bounds = ActionBounds(box([-2, 0, 5], [2, 10, 6]), 3)
    chunks = np.random.default_rng(0).standard_normal((7, 4, 3)).astype(np.float32)
    np.testing.assert_allclose(bounds.normalize(bounds.denormalize(chunks)), chunks, atol=1e-5)


def test_a_box_of_any_shape_and_of_integers():
    space = BoxSpace(shape=(2, 1), dtype=np.dtype(np.int64), low=np.array([[0], [10]]), high=np.array([[4], [20]]))
    assert ActionBounds(space, 2).denormalize(np.float32([[0, -1]])).tolist() == [[2, 10]]
