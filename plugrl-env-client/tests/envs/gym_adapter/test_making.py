"""n environments of one id, in four ways."""

import logging
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import TransformReward
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_adapter.loop_env import LoopEnv
from plugrl_env_client.envs.gym_adapter.making import (
    known_ids,
    make_gym_env,
    require_at_least,
    require_known,
)
from plugrl_env_client.envs.gym_flags import GymFlags


class OnlyVector(VectorEnv):
    """A vector env that makes `made` envs, whatever it is asked for."""

    single_observation_space = spaces.Box(-1, 1, (2,))
    single_action_space = spaces.Discrete(2)
    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, num_envs, made=None, max_episode_steps=None):
        self.num_envs = made or num_envs


@pytest.fixture
def only_vector():
    gymnasium.register("OnlyVector-v0", vector_entry_point=OnlyVector)
    yield "OnlyVector-v0"
    del gymnasium.registry["OnlyVector-v0"]


@pytest.mark.parametrize("vectorization", ["auto", "loop", "sync", "async"])
def test_the_same_seeds_give_the_same_observations_whatever_the_way(vectorization):
    env = make_gym_env("Pendulum-v1", 2, flags=GymFlags(vectorization=vectorization))
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


def test_auto_is_a_loop_and_says_what_else_there_is(caplog):
    with caplog.at_level(logging.INFO):
        for _ in range(2):  # --num-groups makes many
            assert isinstance(make_gym_env("CartPole-v1", 1), LoopEnv)
    assert sum("--env.vectorization own would use" in text for text in caplog.messages) <= 1


def test_auto_is_the_own_form_where_there_is_no_other(only_vector):
    assert make_gym_env(only_vector, 3).num_envs == 3
    with pytest.raises(EnvError, match=r"a vector env only; use --env.vectorization own"):
        make_gym_env(only_vector, 3, flags=GymFlags(vectorization="sync"))
    with pytest.raises(EnvError, match="was asked for 3 envs and made 4"):
        make_gym_env(only_vector, 3, flags=GymFlags(kwargs=("made=4",)))


def test_an_own_form_is_used_where_there_is_one_and_refused_where_not():
    own = GymFlags(vectorization="own")
    assert make_gym_env("CartPole-v1", 2, flags=own).resets_in_step
    with pytest.raises(EnvError, match="Pendulum-v1 has no vector entry point of its own"):
        make_gym_env("Pendulum-v1", 2, flags=own)
    with pytest.raises(EnvError, match=r"--env.wrappers are for single envs"):
        make_gym_env("CartPole-v1", 2, flags=GymFlags(vectorization="own", wrappers=("FlattenObservation",)))


def test_a_replaced_step_limit_is_declared():
    flags = GymFlags(kwargs=("max_episode_steps=5",), vectorization="sync")
    assert make_gym_env("Pendulum-v1", 1, flags=flags).max_episode_steps == 5


def test_the_users_arguments_come_before_the_familys():
    flags = GymFlags(kwargs=("g=1.5",))
    env = make_gym_env("Pendulum-v1", 1, flags=flags, defaults={"g": 2.5, "max_episode_steps": 9})
    assert env._envs[0].unwrapped.g == 1.5
    assert env.max_episode_steps == 9


SPEAKING = """
import gymnasium
from gymnasium import spaces

INHERITED = 0


class Speaking(gymnasium.Env):
    observation_space = spaces.Dict({"inherited": spaces.Discrete(2), "said": spaces.Tuple([spaces.Text(9)])})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.look(), {}

    def step(self, action):
        self.time += 1
        return self.look(), 0.0, False, False, {}

    def look(self):
        return {"inherited": INHERITED, "said": (f"step {self.time}",)}


class Wrapper(gymnasium.Wrapper):
    pass


gymnasium.register("Speaking-v0", entry_point=Speaking)
"""


@pytest.fixture
def speaking(tmp_path, monkeypatch):
    """A module of the current folder, as an installed command finds it."""
    (tmp_path / "speaking.py").write_text(SPEAKING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield "speaking:Speaking-v0"
    gymnasium.registry.pop("Speaking-v0", None)
    sys.modules.pop("speaking", None)


@pytest.mark.parametrize("vectorization", ["loop", "sync", "async"])
def test_texts_arrive_and_modules_are_found_in_the_current_folder(speaking, vectorization):
    env = make_gym_env(speaking, 2, flags=GymFlags(vectorization=vectorization, wrappers=("speaking:Wrapper",)))
    try:
        assert env.reset(0).text.tolist() == ["step 0"] * 2
        assert env.step(np.array([0, 1])).observation.text.tolist() == ["step 1"] * 2
    finally:
        env.close()


def test_processes_start_anew(speaking):
    """What has rendered once, as the simulation that tells the spaces may have, hangs in a fork when it renders."""
    make_gym_env(speaking, 1).close()
    sys.modules["speaking"].INHERITED = 1
    for vectorization, inherited in (("loop", 1), ("async", 0)):
        env = make_gym_env(speaking, 1, flags=GymFlags(vectorization=vectorization))
        try:
            assert env.reset(0).states["inherited"].argmax() == inherited
        finally:
            env.close()


def test_what_cplusplus_throws_is_a_refusal():
    def refuse():
        raise RuntimeError("Invalid game mode requested")

    gymnasium.register("Refusing-v0", entry_point=refuse)
    try:
        with pytest.raises(EnvError, match=r"^cannot make Refusing-v0: Invalid game mode requested$"):
            make_gym_env("Refusing-v0", 1)
    finally:
        del gymnasium.registry["Refusing-v0"]


@pytest.mark.parametrize("vectorization", ["loop", "sync", "async"])
def test_wrappers_are_put_around_every_env_the_familys_first(vectorization):
    flags = GymFlags(vectorization=vectorization, wrappers=("ClipReward(-1.5, 2.5)", "FlattenObservation"))
    env = make_gym_env("CartPole-v1", 2, flags=flags, wrap=lambda env: TransformReward(env, lambda reward: reward * 7))
    try:
        env.reset(0)
        assert env.step(np.array([0, 1])).rewards.tolist() == [2.5, 2.5]
    finally:
        env.close()


@pytest.mark.parametrize("vectorization", ["loop", "sync", "async"])
def test_a_wrapper_that_does_not_fit_is_refused_by_name(vectorization):
    flags = GymFlags(vectorization=vectorization, wrappers=("GrayscaleObservation",))
    with pytest.raises(EnvError, match=r"--env.wrappers GrayscaleObservation: "):
        make_gym_env("CartPole-v1", 2, flags=flags)


def test_ids_are_found_by_where_their_code_lives():
    ids = known_ids(within=("gymnasium.envs.classic_control",))
    assert "CartPole-v1" in ids
    assert "FrozenLake-v1" not in ids
    assert "CartPole-v1" not in known_ids(within=("gymnasium.envs.classic_control",), without="CartPole")


def test_an_unknown_name_is_refused_with_advice():
    require_known("Pong", ["Pong"], "atari-v1")
    with pytest.raises(EnvError, match=r"--env.name pong: did you mean Pong\? atari-v1 has Breakout, Pong"):
        require_known("pong", ["Breakout", "Pong"], "atari-v1")


def test_a_number_that_is_too_small_is_refused():
    require_at_least("--env.n", 1, 1)
    with pytest.raises(EnvError, match=r"--env.n 0: expected at least 1"):
        require_at_least("--env.n", 0, 1)


def test_the_module_of_an_id_is_found_in_the_current_folder(monkeypatch, tmp_path):
    (tmp_path / "registers_here.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Here-v0', entry_point=CartPoleEnv)\n"
    )
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder not in ("", ".")])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EnvError, match=r"cannot make not_here:Here-v0: No module named 'not_here'"):
        make_gym_env("not_here:Here-v0", 1)
    make_gym_env("registers_here:Here-v0", 2).close()
    del gymnasium.registry["Here-v0"]
