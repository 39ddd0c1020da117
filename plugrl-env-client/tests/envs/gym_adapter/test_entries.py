"""Which entries of an observation space are sent, and how each looks on the wire."""

import numpy as np
import pytest
from gymnasium import spaces
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_adapter.entries import entries
from plugrl_env_client.envs.gym_adapter.layout import Layout

IMAGE = spaces.Box(0, 255, (6, 5, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
ROBOT = spaces.Dict(
    {"front": IMAGE, "wrist": IMAGE, "joints": VECTOR, "grip": spaces.Discrete(2), "task": spaces.Text(20)}
)


def shown(space, *values, **keys):
    layout = Layout(space, len(values), **keys)
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
        ((2, 84, 84), (84, 84, 2)),
        ((7, 7, 3), (7, 7, 3)),
        ((4, 6, 5, 1), (6, 5, 4)),
        ((2, 6, 5, 3), (6, 5, 6)),
        ((2, 3, 6, 5), (6, 5, 6)),
    ],
)
def test_an_image_is_sent_as_height_width_channels(shape, sent):
    space = spaces.Box(0, 255, shape, np.uint8)
    value = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    image = shown(space, value).images["image"]
    assert image.shape == (1, *sent)
    assert image.dtype == np.uint8
    assert sorted(image.ravel()) == sorted(value.ravel())
    if len(shape) == 3 and sent[2] == shape[0]:
        assert image[0, 2, 1].tolist() == value[:, 2, 1].tolist()


def test_a_stack_of_images_is_sent_as_channels_side_by_side_the_first_image_first():
    value = np.random.default_rng(0).integers(0, 256, (2, 6, 5, 3), np.uint8)
    pixel = [*value[0, 4, 3], *value[1, 4, 3]]
    assert shown(spaces.Box(0, 255, (2, 6, 5, 3), np.uint8), value).images["image"][0, 4, 3].tolist() == pixel
    first = np.moveaxis(value, -1, 1)  # channels first
    assert shown(spaces.Box(0, 255, (2, 3, 6, 5), np.uint8), first).images["image"][0, 4, 3].tolist() == pixel


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


def names(**keys):
    return [(entry.kind, entry.name) for entry in entries(ROBOT, **keys)]


def test_all_entries_are_sent_unless_some_are_chosen():
    assert names() == [
        ("states", "grip"),
        ("states", "joints"),
        ("images", "front"),
        ("images", "wrist"),
        ("text", "task"),
    ]


def test_chosen_entries_come_in_the_order_given():
    chosen = names(state_keys=("joints", "grip"), image_keys=("wrist",))
    assert chosen == [("states", "joints"), ("states", "grip"), ("images", "wrist"), ("text", "task")]
    assert names(state_keys=(), image_keys=()) == [("text", "task")]
    assert [name for kind, name in names(image_keys=("wrist", "front")) if kind == "images"] == ["wrist", "front"]


def test_an_image_that_is_named_as_a_state_is_flattened():
    grid = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    observation = shown(spaces.Box(0, 255, (2, 2, 3), np.uint8), grid, state_keys=("image",))
    assert observation.images == {}
    assert observation.states["image"].tolist() == [list(range(12))]
    assert ("images", "front") not in names(state_keys=("front",))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"state_keys": ("arm",)}, r"--env.state-keys arm: .*states: grip, joints; images: front, wrist; text: task"),
        ({"image_keys": ("top",)}, r"--env.image-keys top: the env has no such entry; it has states: grip, joints"),
        ({"image_keys": ("joints",)}, r"--env.image-keys joints: Box.* is a state; an image is a Box of uint8"),
        ({"state_keys": ("task",)}, r"--env.state-keys task: that is the text, which is always sent"),
        ({"state_keys": ("grip", "grip")}, r"--env.state-keys grip: named twice"),
        ({"state_keys": ("front",), "image_keys": ("front",)}, r"--env.image-keys front: --env.state-keys names it"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused_with_the_entries_that_exist(keys, says):
    with pytest.raises(EnvError, match=says):
        entries(ROBOT, **keys)


def test_at_least_one_entry_must_be_left():
    with pytest.raises(EnvError, match="leave nothing to send: states: obs"):
        entries(VECTOR, state_keys=())


def test_two_entries_of_one_name_are_refused():
    with pytest.raises(EnvError, match=r"two entries that would both be called a\.b"):
        entries(spaces.Dict({"a.b": VECTOR, "a": spaces.Dict({"b": VECTOR})}))
