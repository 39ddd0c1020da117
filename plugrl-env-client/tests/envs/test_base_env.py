"""The contract's own pieces; every family is tested against it in its own file."""

import dataclasses

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import BaseEnv, BaseEnvConfig, Observation, Step


def test_a_config_has_the_flags_of_every_family():
    assert [field.name for field in dataclasses.fields(BaseEnvConfig)] == ["info_keys"]


def test_an_env_must_say_how_it_resets_and_steps():
    with pytest.raises(TypeError, match="abstract"):
        BaseEnv()


def test_an_env_needs_nothing_else():
    class Minimal(BaseEnv):
        num_envs = 1

        def reset(self, seed):
            return Observation(images={}, states={"s": np.zeros((1, 1))}, text=[""])

        def step(self, actions):
            no = np.zeros(1, bool)
            return Step(self.reset(None), np.zeros(1), no, no, {})

        def reset_indices(self, indices):
            return self.reset(None)

    env = Minimal()
    assert len(env.step(np.zeros((1, 1))).observation) == 1
    assert (env.action_space, env.resets_in_step) == (None, False)
    env.close()
