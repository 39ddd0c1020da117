"""Buffers for observations."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import given
from hypothesis import strategies as st
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_adapter.layout import Layout

IMAGE = spaces.Box(0, 255, (6, 5, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,), np.float32)


def test_lesson_15_rows_are_copied_out_of_the_envs_buffer():
    buffer, layout = np.zeros(3), Layout(VECTOR, 1)
    layout.write(0, buffer)
    buffer[...] = 9
    assert layout.observation.states["obs"].tolist() == [[0, 0, 0]]


def test_an_image_is_copied_once():
    """From what the env returned into the rows that are sent; an observation is a view on those."""
    layout = Layout(IMAGE, 2)
    first = layout.observation.images["image"]
    layout.write(1, np.full((6, 5, 3), 7, np.uint8))
    assert layout.observation.images["image"] is first
    assert first[1].min() == 7
    assert first.flags.c_contiguous


def test_rows_can_be_put_back():
    layout = Layout(spaces.Dict({"v": VECTOR, "t": spaces.Text(9)}), 2)
    for row in range(2):
        layout.write(row, {"v": np.full(3, row), "t": str(row)})
    before = layout.row(1)
    assert layout.shows(1, before)
    for row in range(2):
        layout.write(row, {"v": np.full(3, 7), "t": "x"})
    assert not layout.shows(1, before)
    layout.put(1, before)
    assert layout.observation.states["v"].tolist() == [[7, 7, 7], [1, 1, 1]]
    assert layout.observation.text.tolist() == ["x", "1"]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"v": np.zeros(1), "t": ""}, r"observes v of shape \(1,\), its space promises \(3,\)"),
        ({"v": 0.0, "t": ""}, r"observes v of shape \(\), its space promises \(3,\)"),
        ({"t": ""}, "observation has no v"),
        (np.zeros(3), "observation has no v"),
        ({"v": ["a", "b", "c"], "t": ""}, "observes v of <U1, its space promises float32"),
    ],
)
def test_an_observation_that_is_not_of_its_space_is_refused_by_name(value, says):
    layout = Layout(spaces.Dict({"v": VECTOR, "t": spaces.Text(9)}), 1)
    layout.check({"v": np.zeros(3), "t": "text"})
    with pytest.raises(EnvError, match=says):
        layout.check(value)


@pytest.mark.parametrize(
    ("space", "value", "says"),
    [
        (VECTOR, np.zeros(3), r"observes obs of shape \(3,\), its space promises \(2, 3\)"),
        (VECTOR, [np.zeros(3)], r"observes obs of shape \(1, 3\)"),
        (IMAGE, np.zeros((6, 5, 3), np.uint8), r"observes image of shape \(6, 5, 3\), .* \(2, 6, 5, 3\)"),
    ],
)
def test_a_batch_that_is_not_of_its_space_is_refused_by_name(space, value, says):
    layout = Layout(space, 2)
    layout.check(np.zeros((2, *space.shape), space.dtype), batched=True)
    with pytest.raises(EnvError, match=says):
        layout.check(value, batched=True)


def test_an_image_of_fractions_is_refused_and_not_cut_to_zeros():
    with pytest.raises(EnvError, match="the env observes image of float32, its space promises uint8"):
        Layout(IMAGE, 1).check(np.full((6, 5, 3), 0.5, np.float32))
    Layout(IMAGE, 1).check(np.full((6, 5, 3), 7, np.int64))


def test_a_tuple_of_numbers_is_checked_by_its_space_alone():
    Layout(spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 9, (2,)))), 1).check((1, np.zeros(2)))


def test_what_is_not_a_number_is_still_shown():
    layout = Layout(VECTOR, 1)
    layout.write(0, np.full(3, np.nan))
    assert layout.shows(0, layout.row(0))


SPACES = st.recursive(
    st.sampled_from(
        [
            VECTOR,
            IMAGE,
            spaces.Box(0, 255, (3, 6, 5), np.uint8),
            spaces.Box(0, 255, (2, 6, 5, 3), np.uint8),
            spaces.Box(-1, 1, (2, 3)),
            spaces.Discrete(3, start=1),
            spaces.MultiDiscrete([2, 4]),
            spaces.MultiBinary(2),
        ]
    ),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
        | st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(spaces.Dict)
    ),
    max_leaves=5,
)


@given(SPACES, st.integers(1, 3), st.integers(0, 2**16))
def test_a_batch_of_a_vector_env_is_read_like_its_rows(space, num_envs, seed):
    space.seed(seed)
    values = [space.sample() for _ in range(num_envs)]
    batch = concatenate(space, values, create_empty_array(space, num_envs))
    assert batch_space(space, num_envs).contains(batch)
    by_row, at_once = Layout(space, num_envs), Layout(space, num_envs)
    at_once.check(batch, batched=True)
    for row, value in enumerate(values):
        by_row.write(row, value)
    at_once.write_batch(batch)
    one, other = by_row.observation, at_once.observation
    assert one.states.keys() == other.states.keys()
    assert all(np.array_equal(one.states[name], other.states[name]) for name in one.states)
    assert all(np.array_equal(one.images[name], other.images[name]) for name in one.images)
