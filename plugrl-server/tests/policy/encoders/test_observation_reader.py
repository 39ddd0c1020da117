"""What a policy reads of observations, stores of them, and gives its networks."""

import numpy as np
import pytest
import torch
from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning import trees
from plugrl_server.policy.encoders.observation_config import ObservationConfig
from plugrl_server.policy.encoders.observation_reader import ReadsObservations

SHAPES = {"wrist": (36, 48, 3), "front": (84, 84, 4)}


class Reader(ReadsObservations):
    def get_action_and_runtime_state(self, obs):
        return np.zeros((len(obs["text"]), 1, 1)), None


def reader(**changes):
    return Reader(ObservationConfig(**{"obs_dim": 3, "device": "cpu", **changes}))


def seeing(**changes):
    return reader(state_keys=("a", "b"), image_keys=tuple(SHAPES), image_shapes=SHAPES, **changes)


def observation(n=2, **states):
    rng = np.random.default_rng(0)
    states = states or {"b": rng.standard_normal((n, 1)), "a": rng.standard_normal((n, 2)), "extra": np.ones((n, 1))}
    images = {key: rng.integers(256, size=(n, *shape), dtype=np.uint8) for key, shape in SHAPES.items()}
    return {
        "images": {**images, "unread": np.zeros((n, 4, 4, 3), np.uint8)},
        "states": {name: np.asarray(value) for name, value in states.items()},
        "text": np.full(n, ""),
    }


def test_states_alone_are_one_array():
    observed = reader(state_keys=("b", "a")).observe(observation(1, b=[[3.0]], a=[[1.0, 2]]))
    assert (observed.dtype, observed.tolist()) == (np.float32, [[3, 1, 2]])
    assert reader().image_keys == ()


def test_images_stay_bytes_beside_the_states():
    obs = observation()
    observed = seeing().observe(obs)
    assert observed.keys() == {"states", "images"}
    assert observed["states"].shape == (2, 3)
    assert list(observed["images"]) == ["wrist", "front"]
    for key, image in observed["images"].items():
        assert image is obs["images"][key]


def test_images_alone_leave_no_states():
    blind = reader(obs_dim=0, state_keys=(), image_keys=("wrist",), image_shapes={"wrist": SHAPES["wrist"]})
    obs = observation()
    observed = blind.observe(obs)
    assert observed.keys() == {"images"}
    assert blind.check_observation(obs) is None
    features = blind.features(observed)
    assert torch.equal(features["images"]["wrist"], torch.from_numpy(obs["images"]["wrist"]))
    blind.update_normalizer(observed)
    assert blind.normalizer.count == 0


def test_features_are_normalised_states_and_images_as_they_are():
    policy = seeing()
    observed = policy.observe(observation(50))
    policy.update_normalizer(observed)
    features = policy.features(observed)
    torch.testing.assert_close(features["states"].mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(features["states"].std(0, correction=0), torch.ones(3))
    assert {image.dtype for image in features["images"].values()} == {torch.uint8}
    rows = policy.features(trees.take(observed, slice(3, 5)))
    assert torch.equal(rows["states"], features["states"][3:5])


def test_features_take_arrays_and_tensors_alike():
    policy = reader()
    states = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    assert torch.equal(policy.features(states), policy.features(torch.from_numpy(states)))


def test_an_image_that_views_a_message_is_copied_not_refused():
    image = np.frombuffer(bytes(2 * 36 * 48 * 3), np.uint8).reshape(2, 36, 48, 3)
    policy = reader(obs_dim=0, state_keys=(), image_keys=("wrist",), image_shapes={"wrist": (36, 48, 3)})
    assert policy.features({"images": {"wrist": image}})["images"]["wrist"].shape == image.shape
    assert policy.features({"images": {"wrist": image[:, ::-1]}})["images"]["wrist"].shape == image.shape


@pytest.mark.parametrize(
    ("images", "problem"),
    [
        ({"front": None}, "observation.images lacks front, which this run's policy reads; sent: unread, wrist"),
        (
            {"wrist": np.zeros((2, 36, 48, 3), np.float32)},
            "images.wrist is float32: images are read as uint8 of 0 to 255",
        ),
        ({"wrist": np.zeros((2, 48, 36, 3), np.uint8)}, "images.wrist [48, 36, 3], this run has [36, 48, 3]"),
    ],
)
def test_what_cannot_be_read_is_named(images, problem):
    obs = observation()
    assert seeing().check_observation(obs) is None
    obs["images"] = {key: image for key, image in {**obs["images"], **images}.items() if image is not None}
    assert seeing().check_observation(obs) == problem


def test_another_width_of_states_is_named_before_the_images():
    assert seeing(obs_dim=4).check_observation(observation()) == "obs_dim 3, this run has 4"


@pytest.mark.parametrize("policy", [reader(), seeing()])
def test_fake_observations_are_readable(policy):
    obs = policy.fake_obs(3)
    assert policy.check_observation(obs) is None
    assert trees.leading(policy.observe(obs)) == 3


def test_features_follow_the_dtype_of_narrow_weights():
    policy = reader()
    policy.feature_dtype = torch.bfloat16
    assert policy.features(torch.randn(2, 3)).dtype == torch.bfloat16


def test_a_missing_width_is_refused_with_the_flag():
    with pytest.raises(ConfigError, match=r"Reader needs --policy\.obs-dim"):
        reader(obs_dim=None)
