"""What is reported equals what happened, row by row, in every vectorisation and autoreset mode (field lesson 16).

Every observation says where it comes from (env, episode, step), as numbers, as an image and as text, and so does every
reward. An env of `Told` is the only one that knows; the reports are compared with what it must have gone through.
"""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from plugrl_env_client.envs.actions import action_rule
from plugrl_env_client.envs.gym_adapter.loop_env import LoopEnv
from plugrl_env_client.envs.gym_adapter.vector_env import GymVectorEnv
from plugrl_env_client.envs.gym_flags import GymFlags

FLAGS = GymFlags(info_keys=("step",))


class Told(gymnasium.Env):
    """Tells (env, episode, step) in every way; its e-th episode has `lengths[e]` steps, odd ones are truncated."""

    observation_space = spaces.Dict(
        {
            "where": spaces.Box(0, 255, (3,), np.float64),
            "camera": spaces.Box(0, 255, (3, 8, 6), np.uint8),
            "step": spaces.Discrete(50),
            "text": spaces.Text(20, charset="0123456789 "),
        }
    )
    action_space = spaces.Discrete(1000)

    def __init__(self, number, lengths, reuses):
        self.number, self.lengths, self.reuses = number, lengths, reuses
        self.episode, self.time = -1, 0
        self.where = np.zeros(3)
        self.camera = np.zeros((3, 8, 6), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.time = 0
        return self._look(), {}

    def step(self, action):
        self.time += 1
        done = self.time >= self.lengths[self.episode % len(self.lengths)]
        odd = bool(self.episode % 2)
        info = {"step": self.time}
        if done:
            info["success"] = self.episode % 3 == 0
        return self._look(), self.number + action / 1000, bool(done and not odd), bool(done and odd), info

    def _look(self):
        if not self.reuses:
            self.where, self.camera = self.where.copy(), self.camera.copy()
        self.where[:] = self.number, self.episode, self.time
        self.camera[...] = self.where[:, None, None]
        text = f"{self.number} {self.episode} {self.time}"
        return {"where": self.where, "camera": self.camera, "step": self.time, "text": text}


def make(kind, lengths):
    # Buffers that are reused in place (lesson 15), but for SAME_STEP: there Gymnasium itself hands out a final
    # observation that the env's own reset would overwrite.
    reuses = kind == "loop" or kind[1] is not AutoresetMode.SAME_STEP
    makers = [functools.partial(Told, number, own, reuses) for number, own in enumerate(lengths)]
    if kind == "loop":
        return LoopEnv([maker() for maker in makers], env_id="told", flags=FLAGS)
    vector, mode = kind
    if vector is AsyncVectorEnv:
        env = AsyncVectorEnv(makers, autoreset_mode=mode, shared_memory=False)
    else:
        env = SyncVectorEnv(makers, autoreset_mode=mode)
    return GymVectorEnv(env, env_id="told", flags=FLAGS)


def rows(observation):
    """[(env, episode, step)] as the states say, after checking that everything else says the same."""
    found = [tuple(int(value) for value in row) for row in observation.states["where"]]
    for row, (number, episode, time) in enumerate(found):
        assert observation.images["camera"].shape[1:] == (8, 6, 3)
        assert (observation.images["camera"][row] == (number, episode, time)).all()
        assert np.flatnonzero(observation.states["step"][row]).tolist() == [time]
        assert observation.text[row] == f"{number} {episode} {time}"
    return found


class Expected:
    """Where each env must be."""

    def __init__(self, lengths):
        self.lengths = lengths
        self.at = [(number, 0, 0) for number in range(len(lengths))]

    def length(self, row):
        return self.lengths[row][self.at[row][1] % len(self.lengths[row])]

    def step(self, row):
        number, episode, time = self.at[row]
        self.at[row] = (number, episode, time + 1)

    def reset(self, row):
        number, episode, _ = self.at[row]
        self.at[row] = (number, episode + 1, 0)

    def ended(self):
        return [time >= self.length(row) for row, (_, _, time) in enumerate(self.at)]

    def check(self, step, actions, resetting=()):
        """The report of a step in which the rows `resetting` did not run."""
        assert rows(step.observation) == self.at
        ended = self.ended()
        for row, (number, episode, time) in enumerate(self.at):
            runs = row not in resetting
            assert step.rewards[row] == (number + actions[row] / 1000 if runs else 0.0)
            assert step.terminated[row] == (ended[row] and not episode % 2)
            assert step.truncated[row] == (ended[row] and bool(episode % 2))
            assert step.infos.get("step", np.zeros(len(self.at)))[row] == (time if runs else 0)
            if ended[row]:
                assert step.infos["success"][row] == (episode % 3 == 0)


def live(env, lengths, seed, steps):
    """Run `env` as a rollout does: rows that have ended are reset at once, others now and then (cut short)."""
    rng = np.random.default_rng(seed)
    expected = Expected(lengths)
    assert rows(env.reset(seed)) == expected.at
    for _ in range(steps):
        actions = rng.integers(0, 1000, len(lengths))
        if env.resets_in_step:
            resetting = np.flatnonzero(expected.ended()).tolist()
            for row in range(len(lengths)):
                expected.reset(row) if row in resetting else expected.step(row)
            expected.check(env.step(actions), actions, resetting)
            continue
        for row in range(len(lengths)):
            expected.step(row)
        expected.check(env.step(actions), actions)
        to_reset = np.flatnonzero(np.array(expected.ended()) | (rng.random(len(lengths)) < 0.1))
        if len(to_reset):
            rng.shuffle(to_reset)
            for row in to_reset:
                expected.reset(row)
            assert rows(env.reset_indices(to_reset)) == expected.at


LENGTHS = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4)
KINDS = ["loop", *((SyncVectorEnv, mode) for mode in AutoresetMode)]


@pytest.mark.parametrize("kind", KINDS, ids=["loop", "next step", "same step", "disabled"])
@given(lengths=LENGTHS, seed=st.integers(0, 2**16))
@settings(max_examples=30, deadline=None)
def test_what_is_reported_is_what_happened(kind, lengths, seed):
    env = make(kind, lengths)
    live(env, lengths, seed, steps=15)
    env.close()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_in_processes_of_their_own_too(mode):
    lengths = [[2, 1, 3], [3], [1, 4]]
    env = make((AsyncVectorEnv, mode), lengths)
    try:
        live(env, lengths, seed=1, steps=25)
    finally:
        env.close()


class Particular(Told):
    """Takes no action but one of its space, exactly: shape, dtype and range."""

    def __init__(self, space):
        super().__init__(0, [5], True)
        self.action_space = space

    def step(self, action):
        assert self.action_space.contains(action), repr(action)
        return super().step(0)


@pytest.mark.parametrize(
    ("space", "chunk"),
    [
        (spaces.Box(-1, 1, (2, 3), np.float32), np.full((1, 2, 2, 3), 7.5)),
        (spaces.Box(0, 9, (2,), np.int16), np.full((1, 2, 2), 3.4)),
        (spaces.Discrete(3, start=2), np.array([[2, 4]])),
        (spaces.Discrete(3), np.array([[[2.0], [0.0]]])),
        (spaces.MultiDiscrete([2, 5]), np.array([[[1, 4], [0, 0]]])),
        (spaces.MultiBinary(3), np.array([[[1.0, 0, 1], [0, 0, 0]]])),
    ],
    ids=["box", "whole box", "discrete", "discrete column", "multi discrete", "multi binary"],
)
@pytest.mark.parametrize("kind", ["loop", SyncVectorEnv, AsyncVectorEnv])
def test_every_env_gets_an_action_of_its_space(space, chunk, kind):
    makers = [functools.partial(Particular, space)] * 2
    if kind == "loop":
        env = LoopEnv([maker() for maker in makers], env_id="told")
    elif kind is SyncVectorEnv:
        env = GymVectorEnv(SyncVectorEnv(makers), env_id="told")
    else:
        env = GymVectorEnv(AsyncVectorEnv(makers, shared_memory=False), env_id="told")
    try:
        env.reset(0)
        env.step(action_rule(env.action_space, "told").prepare(chunk)[0])
    finally:
        env.close()
