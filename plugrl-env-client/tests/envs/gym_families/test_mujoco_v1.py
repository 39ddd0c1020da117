"""mujoco-v1."""

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_families.mujoco_v1 import MujocoConfig, make_mujoco

pytest.importorskip("mujoco")


def test_the_default_is_halfcheetah():
    env = make_mujoco(MujocoConfig(), 2)
    assert env.reset(0).states["obs"].shape == (2, 17)
    assert env.action_space.shape == (6,)
    step = env.step(np.zeros((2, 6), np.float32))
    assert step.observation.states["obs"].dtype == np.float64
    env.close()


def test_an_id_that_needs_the_old_bindings_is_refused_with_the_ones_that_run():
    with pytest.raises(EnvError, match=r"did you mean HalfCheetah-v.*mujoco-v1 has Ant-v4, Ant-v5"):
        make_mujoco(MujocoConfig(name="HalfCheetah-v2"), 1)
