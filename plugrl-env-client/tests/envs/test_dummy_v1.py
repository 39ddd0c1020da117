"""dummy-v1: what it sends says where it comes from."""

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.dummy_v1 import DummyConfig, DummyEnv


def test_an_episode_lasts_100_steps_and_is_truncated():
    env = DummyEnv(DummyConfig(), 2)
    env.reset(0)
    flags = [env.step(np.zeros((2, 7))) for _ in range(100)]
    assert [bool(step.truncated.all()) for step in flags] == [False] * 99 + [True]
    assert not any(step.terminated.any() for step in flags)


def test_the_state_tells_env_episode_and_step():
    env = DummyEnv(DummyConfig(state_dim=5), 2)
    env.reset(0)
    env.step(np.zeros((2, 1)))
    observation = env.reset_indices(np.array([1]))
    assert observation.states["obs"].tolist() == [[0, 0, 1, 0, 0], [1, 1, 0, 0, 0]]


def test_images_are_sent_where_asked_for():
    env = DummyEnv(DummyConfig(images=("front", "wrist"), image_size=8), 3)
    images = env.reset(0).images
    assert {name: image.shape for name, image in images.items()} == {"front": (3, 8, 8, 3), "wrist": (3, 8, 8, 3)}


def test_a_space_is_declared_only_where_a_width_is_given():
    assert DummyEnv(DummyConfig(), 1).action_space is None
    assert DummyEnv(DummyConfig(action_dim=3), 1).action_space.shape == (3,)


def test_flags_that_would_change_nothing_are_refused():
    with pytest.raises(EnvError, match=r"--env\.info-keys success step: dummy-v1 has no info to send"):
        DummyEnv(DummyConfig(info_keys=("success", "step")), 1)
    with pytest.raises(EnvError, match=r"--env\.image-size 84: expected --env\.images too, or no image is sent"):
        DummyEnv(DummyConfig(image_size=84), 1)


@pytest.mark.parametrize("config", [DummyConfig(state_dim=0), DummyConfig(image_size=0), DummyConfig(action_dim=0)])
def test_sizes_below_one_are_refused_by_flag(config):
    with pytest.raises(EnvError, match=r"--env\.(state-dim|image-size|action-dim) 0: expected at least 1"):
        DummyEnv(config, 1)
