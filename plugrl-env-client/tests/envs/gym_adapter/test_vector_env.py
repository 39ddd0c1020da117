"""Vector environments in the three autoreset modes, against transitions written by hand (field lesson 16)."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from plugrl_env_client.envs.gym_adapter.vector_env import GymVectorEnv


class Counter(gymnasium.Env):
    """Observes (its own number, the episode, the step); terminates after `length` steps."""

    observation_space = spaces.Box(-100, 100, (3,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, number, length):
        self.state = np.array([number, -1.0, 0.0])
        self.length = length

    def reset(self, *, seed=None, options=None):
        self.state = self.state + np.array([0, 1, 0])
        self.state[2] = 0
        return self.state, {}

    def step(self, action):
        self.state = self.state + np.array([0, 0, 1])
        over = bool(self.state[2] >= self.length)
        return self.state, 1.0, over, False, {"is_success": over, "step": int(self.state[2])}


def make(kind, mode, lengths=(2, 3)):
    makers = [lambda i=i, length=length: Counter(i, length) for i, length in enumerate(lengths)]
    return GymVectorEnv(kind(makers, autoreset_mode=mode), env_id="counter")


def rows(observation):
    return [tuple(int(value) for value in row) for row in observation.states["obs"]]


KINDS = pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])


@KINDS
@pytest.mark.parametrize("mode", [AutoresetMode.DISABLED, AutoresetMode.SAME_STEP])
def test_reset_at_will(kind, mode):
    """Both modes look alike from outside: the final observation first, the next episode's after `reset_indices`."""
    env = make(kind, mode)
    try:
        assert not env.resets_in_step
        assert rows(env.reset(0)) == [(0, 0, 0), (1, 0, 0)]
        assert rows(env.step(np.array([0, 0])).observation) == [(0, 0, 1), (1, 0, 1)]
        step = env.step(np.array([0, 0]))
        assert step.terminated.tolist() == [True, False]
        assert step.infos["success"].tolist() == [True, False]
        assert rows(step.observation) == [(0, 0, 2), (1, 0, 2)]
        assert rows(env.reset_indices(np.array([0]))) == [(0, 1, 0), (1, 0, 2)]
        step = env.step(np.array([0, 0]))
        assert step.terminated.tolist() == [False, True]
        assert rows(step.observation) == [(0, 1, 1), (1, 0, 3)]
        assert rows(env.reset_indices(np.array([1]))) == [(0, 1, 1), (1, 1, 0)]
    finally:
        env.close()


@KINDS
def test_next_step(kind):
    env = make(kind, AutoresetMode.NEXT_STEP)
    try:
        assert env.resets_in_step
        env.reset(0)
        env.step(np.array([0, 0]))
        step = env.step(np.array([0, 0]))
        assert step.terminated.tolist() == [True, False]
        assert rows(step.observation) == [(0, 0, 2), (1, 0, 2)]
        step = env.step(np.array([0, 0]))  # env 0 spends this step on its reset
        assert step.terminated.tolist() == [False, True]
        assert rows(step.observation) == [(0, 1, 0), (1, 0, 3)]
        assert step.rewards.tolist() == [0.0, 1.0]
    finally:
        env.close()


def test_a_vector_env_that_does_not_say_resets_in_its_next_step():
    class Silent(VectorEnv):
        num_envs = 2
        single_observation_space = Counter.observation_space
        single_action_space = Counter.action_space

        def __init__(self):
            self.metadata = {}

    assert GymVectorEnv(Silent(), env_id="silent").resets_in_step


def test_infos_are_batches_only_where_their_mask_says_so():
    """Lesson 18: `pair` has as many entries as there are envs, and is no batch."""
    env = make(SyncVectorEnv, AutoresetMode.DISABLED)
    env = GymVectorEnv(env._env, env_id="counter", info_keys=("step", "pair"))
    infos = {"step": np.array([4, 5]), "_step": np.array([True, True]), "pair": np.array([1, 2])}
    assert {key: value.tolist() for key, value in env._tell(infos, np.zeros(2, bool)).items()} == {"step": [4, 5]}


def test_seeds_count_up_from_the_first():
    same = make(SyncVectorEnv, AutoresetMode.DISABLED)
    seen = []
    for env in same._env.envs:
        env.reset = lambda seed=None, options=None, env=env: (seen.append(seed), (env.state, {}))[1]
    same.reset(5)
    assert seen == [5, 6]
