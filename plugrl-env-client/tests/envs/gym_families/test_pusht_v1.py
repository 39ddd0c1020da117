"""pusht-v1, with gym-pusht (extra `pusht`)."""

import importlib
import warnings

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_families.pusht_v1 import PushtConfig, make_pusht
from plugrl_env_client.testing import EnvContract

with warnings.catch_warnings():  # pygame and pymunk have some on import
    warnings.simplefilter("ignore")
    pytest.importorskip("gym_pusht", reason="needs the extra pusht")
    importlib.import_module("gym_pusht.envs")


@pytest.mark.parametrize(
    ("observe", "shapes"),
    [
        ("state", {"obs": (2, 5)}),
        ("keypoints", {"environment_state": (2, 16), "agent_pos": (2, 2)}),
        ("pixels", {"image": (2, 32, 32, 3)}),
        ("pixels-agent-pos", {"pixels": (2, 32, 32, 3), "agent_pos": (2, 2)}),
    ],
)
def test_what_is_observed(observe, shapes):
    env = make_pusht(PushtConfig(observe=observe, image_size=32), 2)
    seen = env.reset(0)
    assert {name: array.shape for name, array in {**seen.images, **seen.states}.items()} == shapes
    assert (env.max_episode_steps, env.action_space.low.tolist(), env.action_space.high.tolist()) == (
        300,
        [0.0, 0.0],
        [512.0, 512.0],
    )
    step = env.step(np.full((2, 2), 256, np.float32))
    assert all(array.shape == shapes[name] for name, array in step.observation.states.items())
    env.close()


def test_an_episode_ends_without_success_where_nothing_is_pushed():
    env = make_pusht(PushtConfig(kwargs=("max_episode_steps=3",)), 1)
    first = env.reset(0).states["obs"].copy()
    steps = [env.step(first[:, :2].astype(np.float32)) for _ in range(3)]
    assert steps[-1].truncated.tolist() == [True]
    assert steps[-1].infos["success"].tolist() == [False]
    env.close()


def test_a_block_on_its_goal_is_a_success():
    env = make_pusht(PushtConfig(info_keys=("coverage",)), 1)
    env.reset(0)
    game = env._envs[0].unwrapped
    x, y, angle = game.goal_pose
    game._set_state(np.array([100.0, 100.0, x, y, angle]))
    game.block.position, game.block.angle = (float(x), float(y)), float(angle)
    step = env.step(np.array([[100, 100]], np.float32))
    assert step.terminated.tolist() == [True]
    assert step.infos["success"].tolist() == [True]
    assert step.infos["coverage"][0] > 0.95
    env.close()


def test_a_mistake_is_refused_by_name():
    with pytest.raises(EnvError, match=r"--env.image-size 0: expected at least 1"):
        make_pusht(PushtConfig(image_size=0), 1)


class TestContract(EnvContract):
    deterministic = False  # where things touch, its rewards may differ in the last digits from one run to the next

    def make_env(self, num_envs):
        config = PushtConfig(observe="pixels-agent-pos", image_size=24, kwargs=("max_episode_steps=6",))
        return make_pusht(config, num_envs)
