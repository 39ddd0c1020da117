"""classic-v1: every id of the two families runs."""

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_adapter.making import known_ids
from plugrl_env_client.envs.gym_families.classic_v1 import FAMILIES, ClassicConfig, make_classic
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace


@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.parametrize("name", known_ids(within=FAMILIES))
def test_every_environment_steps(name):
    env = make_classic(ClassicConfig(name=name), 2)
    observation = env.reset(3)
    assert len(observation) == 2
    assert observation.states["obs"].dtype == np.float64
    if isinstance(env.action_space, BoxSpace):
        actions = np.zeros((2, *env.action_space.shape), env.action_space.dtype)
    else:
        actions = np.zeros(2, np.int64)
    step = env.step(actions)
    assert step.rewards.shape == step.terminated.shape == step.truncated.shape == (2,)
    env.close()


def test_the_default_is_cartpole_and_declares_itself():
    env = make_classic(ClassicConfig(), 1)
    assert (env.env_id, env.action_space, env.max_episode_steps) == ("CartPole-v1", DiscreteSpace(n=2), 500)
    assert env.reward_threshold == 475.0


@pytest.mark.parametrize(
    ("name", "says"), [("Pendulum", "did you mean Pendulum-v1"), ("nothing-like-it", "classic-v1 has Acrobot-v1")]
)
def test_an_unknown_name_is_refused_with_advice(name, says):
    with pytest.raises(EnvError, match=says):
        make_classic(ClassicConfig(name=name), 1)


def test_an_id_of_another_family_is_refused():
    with pytest.raises(EnvError, match=r"--env\.name HalfCheetah-v5"):
        make_classic(ClassicConfig(name="HalfCheetah-v5"), 1)


def test_cartpoles_own_vector_form_resets_itself():
    env = make_classic(ClassicConfig(vectorization="own"), 3)
    assert env.resets_in_step
    assert env.reset(0).states["obs"].shape == (3, 4)
