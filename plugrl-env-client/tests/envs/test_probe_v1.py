"""probe-v1, word for word SPEC 8.1."""

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.probe_v1 import ProbeConfig, ProbeEnv


def test_episodes_last_3_5_7_steps_and_terminate():
    env = ProbeEnv(ProbeConfig(), 4)
    env.reset(None)
    steps = [env.step(np.zeros((4, 1))) for _ in range(7)]
    first = [next(t for t, step in enumerate(steps, 1) if step.terminated[i]) for i in range(4)]
    assert first == [3, 5, 7, 3]
    assert not any(step.truncated.any() for step in steps)
    assert all(step.rewards.tolist() == [1.0] * 4 for step in steps)


def test_it_has_no_info_to_send():
    with pytest.raises(EnvError, match=r"--env\.info-keys t: probe-v1 has no info to send"):
        ProbeEnv(ProbeConfig(info_keys=("t",)), 1)


def test_the_states_are_t_and_the_last_action():
    env = ProbeEnv(ProbeConfig(), 2)
    observation = env.reset(None)
    assert (observation.states["t"].shape, observation.states["a"].shape) == ((2, 1), (2, 1))
    assert observation.images == {}
    actions = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    observation = env.step(actions).observation
    assert observation.states["t"].tolist() == [[1.0], [1.0]]
    assert observation.states["a"].tolist() == actions.tolist()
    assert {state.dtype for state in observation.states.values()} == {np.dtype(np.float64)}


def test_a_reset_puts_t_back_to_zero_for_that_env_alone():
    env = ProbeEnv(ProbeConfig(), 2)
    env.reset(None)
    env.step(np.zeros((2, 3)))
    assert env.reset_indices(np.array([0])).states["t"].tolist() == [[0.0], [1.0]]


def test_scalar_actions_are_one_wide():
    env = ProbeEnv(ProbeConfig(), 2)
    env.reset(None)
    assert env.step(np.array([5, 6])).observation.states["a"].tolist() == [[5.0], [6.0]]


def test_indices_stay_below_1000():
    with pytest.raises(EnvError, match="--num-envs 1001"):
        ProbeEnv(ProbeConfig(), 1001)
