"""`examples/custom_env`: both environments keep the contract and are the same; flags and mistakes are told."""

import sys

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_v1 import GymConfig, make_gym
from plugrl_env_client.registration import env_config, make_env
from plugrl_env_client.testing import EnvContract

from tests.examples import sources

goto = sources.load("custom_env", "goto")
sources.load("custom_env", "goto_gym")


class TestGoto(EnvContract):
    def make_env(self, num_envs):
        return goto.Goto(goto.GotoConfig(), num_envs)


class TestGotoOfGymnasium(EnvContract):
    def make_env(self, num_envs):
        return make_gym(GymConfig(id="goto_gym:Goto-v0"), num_envs)


def test_it_is_registered_with_its_flags():
    env = make_env("goto-v1", env_config("goto-v1")(speed=0.5, horizon=2), 3)
    before = env.reset(0).states["at"].copy()
    step = env.step(np.tile(np.float32([1, 0]), (3, 1)))
    np.testing.assert_allclose(step.observation.states["at"] - before, [[0.5, 0]] * 3)
    assert env.max_episode_steps == 2


def test_a_point_that_arrives_ends_its_episode_with_a_success():
    env = goto.Goto(goto.GotoConfig(speed=1.0), 2)
    env.reset(0)
    env.at[:], env.goal[:] = [[0, 0], [0, 0]], [[1, 0.05], [1, 1]]
    step = env.step(np.float32([[1, 0], [1, 0]]))
    assert step.terminated.tolist() == step.infos["success"].tolist() == [True, False]
    assert step.truncated.tolist() == [False, False]
    np.testing.assert_allclose(step.rewards, [-0.05, -1.0])


def test_both_forms_go_the_same_way():
    one, other = goto.Goto(goto.GotoConfig(), 1), TestGotoOfGymnasium().make_env(1)
    one.reset(0)
    other.reset(0)
    inner = other._envs[0].unwrapped
    one.at[:], one.goal[:] = inner.at, inner.goal
    actions = np.random.default_rng(0).uniform(-1, 1, (40, 1, 2)).astype(np.float32)
    for action in actions:
        first, second = one.step(action), other.step(action)
        np.testing.assert_allclose(first.observation.states["to_goal"], second.observation.states["to_goal"], atol=1e-6)
        np.testing.assert_allclose(first.rewards, second.rewards, atol=1e-6)
        assert first.truncated.tolist() == second.truncated.tolist()
    assert first.truncated.tolist() == [True]


def test_a_mistake_is_refused_by_its_flag():
    with pytest.raises(EnvError, match=r"--env\.horizon 0: expected at least 1"):
        goto.Goto(goto.GotoConfig(horizon=0), 1)


def test_the_gymnasium_form_knows_nothing_of_plugrl():
    assert "plugrl" not in (sources.EXAMPLES / "custom_env/goto_gym.py").read_text().split('"""')[2]
    assert "goto_gym" in sys.modules
