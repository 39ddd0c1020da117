"""Single environments in a loop."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_adapter.loop_env import LoopEnv
from plugrl_env_client.envs.gym_flags import GymFlags


class Counter(gymnasium.Env):
    """Observes the steps of the episode and the last action in a buffer that it reuses (lesson 15)."""

    observation_space = spaces.Box(-100, 100, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, length=3):
        self.length = length
        self.buffer = np.zeros(2, np.float32)
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.buffer[:] = 0
        return self.buffer, {}

    def step(self, action):
        self.buffer[:] = self.buffer[0] + 1, action
        over = self.buffer[0] >= self.length
        info = {"success": over, "last": action}
        return self.buffer, 0.5, bool(over and self.length % 2), bool(over and not self.length % 2), info


def test_env_i_is_seeded_with_seed_plus_i_and_resets_later_without_one():
    envs = [Counter(), Counter()]
    loop = LoopEnv(envs, env_id="c")
    loop.reset(7)
    loop.reset_indices(np.array([1]))
    assert [env.seeds for env in envs] == [[7], [8, None]]


def test_without_a_seed_envs_seed_themselves():
    env = Counter()
    LoopEnv([env], env_id="c").reset(None)
    assert env.seeds == [None]


def test_each_env_gets_its_own_action_and_row():
    loop = LoopEnv([Counter(), Counter()], env_id="c")
    loop.reset(0)
    step = loop.step(np.array([1, 2]))
    assert step.observation.states["obs"].tolist() == [[1, 1], [1, 2]]
    assert step.rewards.tolist() == [0.5, 0.5]


def test_lesson_16_the_final_observation_stays_until_the_reset():
    loop = LoopEnv([Counter(1), Counter(2)], env_id="c")
    loop.reset(0)
    step = loop.step(np.array([2, 2]))
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True, False], [False, False])
    assert step.infos["success"].tolist() == [True, False]
    assert step.observation.states["obs"].tolist() == [[1, 2], [1, 2]]
    assert loop.reset_indices(np.array([0])).states["obs"].tolist() == [[0, 0], [1, 2]]
    step = loop.step(np.array([0, 1]))
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True, False], [False, True])


def test_named_infos_are_sent_with_every_step():
    loop = LoopEnv([Counter(9), Counter(9)], env_id="c", flags=GymFlags(info_keys=("last",)))
    loop.reset(0)
    assert loop.step(np.array([0, 2])).infos["last"].tolist() == [0, 2]


def test_an_env_that_observes_something_else_than_its_space_is_refused():
    env = Counter()
    env.buffer = np.zeros(1, np.float32)
    with pytest.raises(EnvError, match=r"observes obs of shape \(1,\), its space promises \(2,\)"):
        LoopEnv([env], env_id="c").reset(0)


def test_envs_of_different_spaces_are_refused():
    other = Counter()
    other.action_space = spaces.Discrete(4)
    with pytest.raises(EnvError, match="equal observation and action spaces"):
        LoopEnv([Counter(), other], env_id="c")
