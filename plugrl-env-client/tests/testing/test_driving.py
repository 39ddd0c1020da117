"""Drives step, end and go on as rollouts do; drawn actions are of their space."""

import functools

import gymnasium
import numpy as np
import pytest
from plugrl_env_client.envs.actions import action_rule
from plugrl_env_client.envs.gym_adapter.vector_env import GymVectorEnv
from plugrl_env_client.envs.probe_v1 import ProbeConfig, ProbeEnv
from plugrl_env_client.testing.driving import Drive, corners, finite_bounds, first_difference, sample
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace


def box(low, high, dtype=np.float32):
    low, high = np.asarray(low, dtype), np.asarray(high, dtype)
    return BoxSpace(low.shape, low.dtype, low, high)


SPACES = [
    box([-1, 5], [1, 6]),
    box([-np.inf, 0, -np.inf], [np.inf, np.inf, -3]),
    box([0, -3], [255, 7], np.int16),
    box(-1, 1),
    box(0, 200, np.uint8),
    DiscreteSpace(3, start=-1),
    MultiDiscreteSpace(np.array([[2, 3], [4, 5]])),
    MultiBinarySpace(4),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_drawn_and_outermost_actions_are_of_the_space(space):
    rng = np.random.default_rng(0)
    rule = action_rule(space, "env")
    for action in [*corners(space), *(sample(space, rng) for _ in range(50))]:
        assert action.dtype == space.dtype
        assert action.shape == tuple(space.shape)
        np.testing.assert_array_equal(rule.prepare(action[None, None])[0, 0], action)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_different_actions_are_drawn(space):
    rng = np.random.default_rng(0)
    assert len({sample(space, rng).tobytes() for _ in range(50)}) > 1
    assert not np.array_equal(*corners(space))


def test_without_a_space_the_action_is_zero():
    assert sample(None, np.random.default_rng(0)).tolist() == [0.0]
    assert [action.tolist() for action in corners(None)] == [[0.0]]


def test_infinite_bounds_become_finite_ones_in_order():
    low, high = finite_bounds(SPACES[1])
    assert low.tolist() == [-1, 0, -4]
    assert high.tolist() == [1, 1, -3]


def test_ended_rows_go_on_with_the_next_episode():
    drive = Drive(ProbeEnv(ProbeConfig(), 3), 0)  # episodes of 3, 5 and 7 steps
    moments = drive.steps(7)
    assert [moment.ended.tolist() for moment in moments] == [[], [], [0], [], [1], [0], [2]]
    assert moments[2].step.observation.states["t"][:, 0].tolist() == [3, 3, 3]
    assert moments[2].after.states["t"][:, 0].tolist() == [0, 3, 3]
    assert moments[1].after is None
    assert drive.first.states["t"][:, 0].tolist() == [0, 0, 0], "kept, though the env writes into its buffers"


def test_a_drive_runs_until_one_of_the_wanted_rows_ends():
    drive = Drive(ProbeEnv(ProbeConfig(), 3), 0)
    assert drive.until_ended(20, rows=[2]).ended.tolist() == [2]
    assert len(drive.moments) == 7
    assert drive.until_ended(1, rows=[2]) is None


def test_an_env_that_resets_itself_is_left_to_it():
    make = functools.partial(gymnasium.make, "CartPole-v1")
    env = GymVectorEnv(gymnasium.vector.SyncVectorEnv([make] * 2), env_id="CartPole-v1")
    drive = Drive(env, 0)
    moment = drive.until_ended(500)
    assert moment.after is None
    assert drive.step().resetting.tolist() == moment.ended.tolist()
    assert drive.step().resetting.tolist() == []
    env.close()


def test_drives_are_compared_step_by_step():
    one = Drive(ProbeEnv(ProbeConfig(), 2), 0)
    one.steps(6)
    assert first_difference(one, Drive(ProbeEnv(ProbeConfig(), 2), 0), 6) is None
    other = ProbeEnv(ProbeConfig(), 2)
    other._length[1] = 4
    assert first_difference(one, Drive(other, 0), 6) == "after 4 steps, terminated [False False] against [False  True]"
    assert first_difference(one, Drive(ProbeEnv(ProbeConfig(), 3), 0), 6).startswith("after reset, states.t: shape")
