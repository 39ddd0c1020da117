"""Frames in order of arrival, chained by environment."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_server.learning.rollout_buffer import NONE, RolloutBuffer, flat

NO_NODE = (-1, "")


class Envs:
    """Counts for each environment; an observation is [environment, count]."""

    def __init__(self):
        self.counts, self.nodes = {}, {}

    def observation(self, env):
        return [env, self.counts.get(env, 0)]

    def step(self, buffer, envs, terminated=(), truncated=()):
        obs = np.array([self.observation(env) for env in envs], np.float32).reshape(-1, 2)
        for env in envs:
            self.counts[env] = self.counts.get(env, 0) + 1
        next_obs = np.array([self.observation(env) for env in envs], np.float32).reshape(-1, 2)
        nodes = buffer.add(
            obs=obs,
            train_state={"sample": obs[:, 0]},
            next_obs=next_obs,
            reward=obs[:, 1] + 1,
            terminated=np.isin(envs, terminated),
            truncated=np.isin(envs, truncated),
            nodes=[self.nodes.get(env, NO_NODE) for env in envs],
        )
        self.nodes.update(zip(envs, nodes, strict=True))
        for env in {*terminated, *truncated}:
            self.counts[env] += 100  # a new episode begins elsewhere


def columns(buffer):
    """The layout as lists of observations, one list a column."""
    layout = buffer.layout()
    return [[tuple(buffer.obs[slot].astype(int).tolist()) for slot in column if slot != NONE] for column in layout.T]


def test_interleaved_frames_become_one_column_for_each_environment():
    buffer, envs = RolloutBuffer(6), Envs()
    envs.step(buffer, [0, 1])
    envs.step(buffer, [1])
    envs.step(buffer, [1, 0])
    assert len(buffer) == 5
    assert columns(buffer) == [[(1, 0), (1, 1), (1, 2)], [(0, 0), (0, 1)]]
    assert buffer.stored().cut.tolist() == [False, False, False, True, True]


def test_chains_go_on_over_episode_ends_which_are_cuts():
    buffer, envs = RolloutBuffer(4), Envs()
    envs.step(buffer, [0], terminated=[0])
    envs.step(buffer, [0], truncated=[0])
    envs.step(buffer, [0])
    assert columns(buffer) == [[(0, 0), (0, 101), (0, 202)]]
    stored = buffer.stored()
    assert stored.cut.tolist() == [True, True, True]
    assert stored.terminated.tolist() == [True, False, False]
    assert stored.truncated.tolist() == [False, True, False]


def test_a_discarded_frame_ends_the_chain():
    buffer, envs = RolloutBuffer(4), Envs()
    envs.step(buffer, [0])
    envs.nodes[0] = NO_NODE
    envs.counts[0] += 1
    envs.step(buffer, [0])
    assert buffer.stored().cut.tolist() == [True, True]
    assert buffer.stored().successor.tolist() == [NONE, NONE]


def test_next_observations_are_kept_for_truncated_frames_and_chain_ends_only():
    buffer, envs = RolloutBuffer(8), Envs()
    envs.step(buffer, [0, 1])
    envs.step(buffer, [0, 1], terminated=[0], truncated=[1])
    envs.step(buffer, [0, 1])
    stored = buffer.stored()
    kept = {slot: buffer.final_obs[row].tolist() for slot, row in enumerate(stored.final) if row != NONE}
    assert kept == {3: [1, 2], 4: [0, 103], 5: [1, 103]}
    assert set(np.flatnonzero(stored.cut & ~stored.terminated)) == set(kept)
    assert len(buffer.final_obs) <= 4


def test_images_stay_uint8_and_are_stored_once():
    buffer = RolloutBuffer(64)
    nodes = [NO_NODE] * 2
    for step in range(32):
        image = np.full((2, 4, 4, 3), step, np.uint8)
        nodes = buffer.add(
            obs={"camera": image},
            train_state=None,
            next_obs={"camera": image + 1},
            reward=np.zeros(2, np.float32),
            terminated=np.zeros(2, bool),
            truncated=np.zeros(2, bool),
            nodes=nodes,
        )
    assert buffer.obs["camera"].dtype == np.uint8
    assert buffer.obs["camera"].shape == (64, 4, 4, 3)
    assert len(buffer.final_obs["camera"]) <= 4
    assert buffer.final_obs["camera"][buffer.stored().final[-2:]].max() == 32


def test_nodes_of_an_earlier_filling_do_not_continue_but_carry_their_return_over():
    buffer, envs = RolloutBuffer(4), Envs()
    envs.step(buffer, [0, 1, 2], terminated=[1])
    buffer.clear(carry=np.array([5.0, 6.0, 7.0], np.float32))
    assert len(buffer) == 0
    envs.step(buffer, [2, 1, 0])
    stored = buffer.stored()
    assert stored.carried.tolist() == [7, 0, 5]  # nothing after an episode end
    assert stored.successor.tolist() == [NONE] * 3
    buffer.clear()
    envs.step(buffer, [2])
    assert buffer.stored().carried.tolist() == [0]


def test_a_full_buffer_refuses():
    buffer, envs = RolloutBuffer(2), Envs()
    envs.step(buffer, [0])
    assert not buffer.full
    with pytest.raises(ValueError, match="2 frames do not fit: 1 of 2 are stored"):
        envs.step(buffer, [0, 1])
    envs.step(buffer, [1])
    assert buffer.full


def test_state_round_trips_in_the_middle_of_an_iteration():
    first, envs = RolloutBuffer(8), Envs()
    envs.step(first, [0, 1], truncated=[1])
    envs.step(first, [0, 1])
    second = RolloutBuffer(8)
    second.load_state_dict(first.state_dict())
    assert columns(second) == columns(first)
    for mine, theirs in zip(second.stored(), first.stored(), strict=True):
        if isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, theirs)
    Envs().step(second, [0, 1, 2])  # the environments of before are gone; new ones start chains of their own
    assert second.stored().cut.tolist() == [False, True, True, True, True, True, True]
    finals = second.stored().final
    assert len(set(finals[finals != NONE])) == (finals != NONE).sum()


def test_a_state_whose_final_observations_have_unused_rows_is_restored():
    first, envs = RolloutBuffer(8), Envs()
    envs.step(first, [0, 1], truncated=[1])
    envs.step(first, [0, 1])
    state = first.state_dict()
    assert len(state["final_obs"]) == 3
    state["final_obs"] = np.concatenate([state["final_obs"], np.zeros((20, 2), np.float32)])
    second = RolloutBuffer(8)
    second.load_state_dict(state)
    Envs().step(second, [0, 1, 2, 3])
    assert len(second.final_obs) == 23
    final = second.stored().final
    assert len(set(final[final != NONE])) == 7
    assert second.final_obs[final[1:]].tolist() == [[1, 1], [0, 2], [1, 102], [0, 1], [1, 1], [2, 1], [3, 1]]


def test_frames_that_all_terminate_have_a_state():
    first, second = RolloutBuffer(4), RolloutBuffer(4)
    Envs().step(first, [0, 1], terminated=[0, 1])
    second.load_state_dict(first.state_dict())
    Envs().step(second, [2])
    assert second.final_obs.tolist() == [[2, 1]]


def test_state_is_a_copy():
    buffer, envs = RolloutBuffer(4), Envs()
    envs.step(buffer, [0])
    state = buffer.state_dict()
    buffer.clear()
    envs.step(buffer, [5])
    assert state["obs"][0].tolist() == [0, 0]


def test_an_empty_buffer_has_a_state_and_a_layout():
    buffer = RolloutBuffer(4)
    other = RolloutBuffer(4)
    other.load_state_dict(buffer.state_dict())
    assert len(other) == 0
    assert buffer.layout().size == 0


def test_more_frames_than_fit_are_refused_when_restored():
    buffer, envs = RolloutBuffer(4), Envs()
    envs.step(buffer, [0, 1, 2])
    with pytest.raises(ValueError, match="3 stored frames do not fit into a buffer of 2"):
        RolloutBuffer(2).load_state_dict(buffer.state_dict())


conversations = st.lists(
    st.tuples(st.sets(st.integers(0, 5), min_size=1), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5))),
    max_size=20,
)


@given(conversations)
def test_any_ragged_exchange_is_laid_out_without_losing_a_frame(messages):
    """Every frame is in one cell; the cell below holds its successor exactly where it is not cut."""
    buffer, envs = RolloutBuffer(200), Envs()
    for present, terminated, truncated in messages:
        terminated, truncated = terminated & present, truncated & present - terminated
        envs.step(buffer, sorted(present), terminated=list(terminated), truncated=list(truncated))
    stored, layout = buffer.stored() if len(buffer) else None, buffer.layout()
    filled = layout[layout != NONE]
    assert sorted(filled) == list(range(len(buffer)))
    assert layout.size <= 2 * len(buffer) + len(layout)
    np.testing.assert_array_equal(flat(np.arange(200)[layout], layout), np.arange(len(buffer)))
    for column in layout.T:
        for above, below in itertools.pairwise(column):
            assert not (above == NONE and below != NONE)
            if above != NONE and below != NONE and not stored.cut[above]:
                assert stored.successor[above] == below
                np.testing.assert_array_equal(buffer.obs[below] - buffer.obs[above], [0, 1])
    for slot in range(len(buffer)):
        if stored.cut[slot] and not stored.terminated[slot]:
            np.testing.assert_array_equal(buffer.final_obs[stored.final[slot]] - buffer.obs[slot], [0, 1])
