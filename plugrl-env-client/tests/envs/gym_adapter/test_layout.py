"""Observation spaces of Gymnasium as observations of the wire."""

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


def shown(space, *values):
    layout = Layout(space, len(values))
    for row, value in enumerate(values):
        layout.write(row, value)
    return layout.observation


def test_a_vector_is_the_state_obs_in_float64():
    observation = shown(VECTOR, np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32))
    assert observation.states["obs"].dtype == np.float64
    assert observation.states["obs"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert observation.images == {}
    assert observation.text.tolist() == ["", ""]


@pytest.mark.parametrize(
    ("space", "value", "row"),
    [
        (spaces.Box(-1, 1, (2, 2)), np.array([[1, 2], [3, 4]]), [1, 2, 3, 4]),
        (spaces.Box(-1, 1, ()), np.array(0.5), [0.5]),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([7, 8], np.uint8), [7, 8]),
        (spaces.Discrete(4), np.int64(2), [0, 0, 1, 0]),
        (spaces.Discrete(3, start=5), np.int64(5), [1, 0, 0]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 9, (1,)))), (1, np.array([4.0])), [0, 1, 4]),
    ],
)
def test_each_space_has_its_rule(space, value, row):
    observation = shown(space, value)
    assert observation.states["obs"].tolist() == [row]


@pytest.mark.parametrize(
    ("shape", "sent"),
    [
        ((6, 5, 3), (6, 5, 3)),
        ((6, 5, 1), (6, 5, 1)),
        ((3, 6, 5), (6, 5, 3)),
        ((4, 84, 84), (84, 84, 4)),
        ((6, 5, 8), (6, 5, 8)),
        ((6, 5), (6, 5, 1)),
    ],
)
def test_an_image_is_sent_as_height_width_channels(shape, sent):
    space = spaces.Box(0, 255, shape, np.uint8)
    value = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    image = shown(space, value).images["image"]
    assert image.shape == (1, *sent)
    assert image.dtype == np.uint8
    assert sorted(image.ravel()) == sorted(value.ravel())
    if shape[0] in (3, 4):
        assert image[0, 2, 1].tolist() == value[:, 2, 1].tolist()


def test_a_dict_sends_each_entry_under_its_key():
    space = spaces.Dict(
        {
            "camera": IMAGE,
            "arm": spaces.Dict({"joints": VECTOR, "grip": spaces.Discrete(2)}),
            "task": spaces.Text(20),
        }
    )
    value = {"camera": np.ones((6, 5, 3), np.uint8), "arm": {"joints": np.ones(3), "grip": 1}, "task": "pick up"}
    observation = shown(space, value, value)
    assert {name: image.shape for name, image in observation.images.items()} == {"camera": (2, 6, 5, 3)}
    assert observation.states["arm.joints"].tolist() == [[1, 1, 1]] * 2
    assert observation.states["arm.grip"].tolist() == [[0, 1]] * 2
    assert observation.text.tolist() == ["pick up"] * 2


def test_a_tuple_with_an_image_sends_each_entry_under_its_position():
    observation = shown(spaces.Tuple((IMAGE, VECTOR)), (np.zeros((6, 5, 3), np.uint8), np.zeros(3)))
    assert list(observation.images) == ["0"]
    assert list(observation.states) == ["1"]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Sequence(spaces.Discrete(3)),
        spaces.Dict({"graph": spaces.Graph(VECTOR, None)}),
        spaces.OneOf([VECTOR, spaces.Discrete(2)]),
    ],
)
def test_a_space_without_a_fixed_size_is_refused_with_the_way_out(space):
    with pytest.raises(EnvError, match=r"no fixed size\. Wrap the env"):
        Layout(space, 1)


def test_two_texts_are_refused():
    with pytest.raises(EnvError, match="holds 2 texts"):
        Layout(spaces.Dict({"a": spaces.Text(3), "b": spaces.Text(3)}), 1)


def test_lesson_15_rows_are_copied_out_of_the_envs_buffer():
    buffer = np.zeros(3)
    observation = shown(VECTOR, buffer)
    buffer[...] = 9
    assert observation.states["obs"].tolist() == [[0, 0, 0]]


def test_rows_can_be_put_back():
    layout = Layout(spaces.Dict({"v": VECTOR, "t": spaces.Text(9)}), 2)
    for row in range(2):
        layout.write(row, {"v": np.full(3, row), "t": str(row)})
    before = layout.snapshot()
    for row in range(2):
        layout.write(row, {"v": np.full(3, 7), "t": "x"})
    layout.restore(np.array([1]), before)
    assert layout.observation.states["v"].tolist() == [[7, 7, 7], [1, 1, 1]]
    assert layout.observation.text.tolist() == ["x", "1"]


SPACES = st.recursive(
    st.sampled_from(
        [
            VECTOR,
            IMAGE,
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
    for row, value in enumerate(values):
        by_row.write(row, value)
    at_once.write_batch(batch)
    one, other = by_row.observation, at_once.observation
    assert one.states.keys() == other.states.keys()
    assert all(np.array_equal(one.states[name], other.states[name]) for name in one.states)
    assert all(np.array_equal(one.images[name], other.images[name]) for name in one.images)
