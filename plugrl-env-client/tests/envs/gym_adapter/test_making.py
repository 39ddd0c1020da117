"""n environments of one id, in four ways."""

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_adapter.making import known_ids, make_gym_env


@pytest.mark.parametrize("vectorization", ["loop", "sync", "async"])
def test_the_same_seeds_give_the_same_observations_whatever_the_way(vectorization):
    env = make_gym_env("Pendulum-v1", 2, vectorization=vectorization)
    try:
        first = env.reset(3).states["obs"].copy()
        assert (env.max_episode_steps, env.resets_in_step) == (200, False)
        step = env.step(np.zeros((2, 1), np.float32))
        reference = make_gym_env("Pendulum-v1", 2)
        assert np.array_equal(first, reference.reset(3).states["obs"])
        assert np.array_equal(
            step.observation.states["obs"], reference.step(np.zeros((2, 1), np.float32)).observation.states["obs"]
        )
    finally:
        env.close()


def test_a_native_form_is_used_where_there_is_one_and_refused_where_not():
    assert make_gym_env("CartPole-v1", 2, vectorization="native").resets_in_step
    with pytest.raises(EnvError, match="Pendulum-v1 has no vector entry point of its own"):
        make_gym_env("Pendulum-v1", 2, vectorization="native")


def test_a_replaced_step_limit_is_declared():
    assert make_gym_env("Pendulum-v1", 1, kwargs={"max_episode_steps": 5}, vectorization="sync").max_episode_steps == 5


def test_ids_are_found_by_where_their_code_lives():
    ids = known_ids(within=("gymnasium.envs.classic_control",))
    assert "CartPole-v1" in ids
    assert "FrozenLake-v1" not in ids
