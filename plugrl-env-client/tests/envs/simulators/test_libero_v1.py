"""libero-v1 on a FAKE LIBERO: the real one's scenes do not come with its package."""

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.simulators.libero_v1 import LiberoConfig, make_libero
from plugrl_env_client.testing import EnvContract


@pytest.fixture(autouse=True)
def _fakes(fake_libero):
    pass


class TestContract(EnvContract):
    def make_env(self, num_envs):
        return make_libero(LiberoConfig(task_ids=(1,), image_size=6, horizon=5), num_envs)


class TestContractOverTasks(EnvContract):
    def make_env(self, num_envs):
        return make_libero(LiberoConfig(suite="libero_goal", image_size=6), num_envs)


def test_the_default_goes_through_a_suite_with_two_cameras():
    env = make_libero(LiberoConfig(), 4)
    observed = env.reset(0)
    assert observed.text.tolist() == ["do task 0", "do task 1", "do task 2", "do task 0"]
    assert {name: image.shape for name, image in observed.images.items()} == {
        "agentview_image": (4, 256, 256, 3),
        "robot0_eye_in_hand_image": (4, 256, 256, 3),
    }
    assert observed.states["state"].shape == (4, 8)
    assert (env.env_id, env.max_episode_steps, env.action_space.shape) == ("libero/libero_spatial", 220, (7,))


def test_a_success_is_told():
    env = make_libero(LiberoConfig(task_ids=(1,), image_size=6), 1)
    env.reset(0)
    told = [env.step(np.zeros((1, 7), np.float32)) for _ in range(6)]
    assert told[-1].terminated.tolist() == [True]
    assert told[-1].infos["success"].tolist() == [True]


def test_flags_reach_the_task(fake_libero):
    flags = {"suite": "libero_goal", "task_ids": (2,), "cameras": ("frontview",), "image_size": 6, "horizon": 3}
    env = make_libero(LiberoConfig(**flags, settle_steps=2), 1)
    observed = env.reset(0)
    assert list(observed.images) == ["frontview_image"]
    assert observed.text.tolist() == ["do task 2"]
    assert env.max_episode_steps == 3
    assert fake_libero.made[-1].still == 2


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"task_ids": (0, 3)}, "--env.task-ids 3: libero_spatial has the tasks 0 to 2"),
        ({"task_ids": (-1,)}, "--env.task-ids -1"),
        ({"cameras": ("rear",)}, "--env.cameras rear: there is no such camera; known: agentview"),
        ({"image_size": 0}, "--env.image-size 0: expected at least 1"),
        ({"settle_steps": -1}, "--env.settle-steps -1: expected at least 0"),
        ({"horizon": 0}, "--env.horizon 0: expected at least 1"),
    ],
)
def test_a_mistake_is_refused_by_flag(flags, says):
    with pytest.raises(EnvError, match=says):
        make_libero(LiberoConfig(**flags), 1)
