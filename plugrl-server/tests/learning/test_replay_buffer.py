"""Every frame that is drawn is one that was added, and no observation is stored twice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_server.common.checkpoint_manager import Checkpoint, CheckpointManager
from plugrl_server.learning import trees
from plugrl_server.learning.replay_buffer import ReplayBuffer

NO_NODE = (-1, "")


class Envs:
    """Environments whose observations encode [environment, episode, step], in a state and in an image."""

    def __init__(self):
        self.places, self.nodes, self.added = {}, {}, []

    def observation(self, envs):
        places = np.array([[env, *self.places.setdefault(env, [0, 0])] for env in envs], np.uint8)
        return {"states": places.astype(np.float32), "images": {"camera": places.reshape(-1, 1, 1, 3)}}

    def step(self, buffer, envs, terminated=(), truncated=(), discarded=()):
        """One message: a frame of each of these environments, of which some are never offered to the buffer."""
        obs = self.observation(envs)
        for env in envs:
            self.places[env][1] += 1
        next_obs = self.observation(envs)
        ends, cuts = np.isin(envs, terminated), np.isin(envs, truncated)
        offered = np.flatnonzero(~np.isin(envs, discarded))
        frames = {"obs": obs, "next_obs": next_obs, "action": {"sample": obs["states"] * 2, "place": obs["states"]}}
        frames |= {"reward": obs["states"][:, 2] + 1, "terminated": ends, "truncated": cuts}
        taken = trees.take(frames, offered)
        before = [self.nodes.get(envs[i], NO_NODE) for i in offered]
        nodes = buffer.add(**taken, nodes=before) if len(offered) else []
        self.nodes.update({env: NO_NODE for env in envs if env in discarded})
        self.nodes.update((envs[i], node) for i, node in zip(offered, nodes, strict=True))
        self.added += [described(taken, i) for i in range(len(offered))]
        for env in {*terminated, *truncated}:
            self.places[env] = [self.places[env][0] + 1, 0]


def described(frames, i):
    """One frame as plain numbers, from a dict of trees or a Batch."""
    read = frames.get if isinstance(frames, dict) else lambda name: getattr(frames, name)
    leaves = []
    for name in ("obs", "action", "next_obs", "reward", "terminated", "truncated"):
        trees.map_leaves(lambda leaf: leaves.append(np.asarray(leaf[i]).ravel().tolist()), read(name))
    return leaves


def held(buffer):
    """All frames of a buffer, oldest first."""
    order = np.arange(max(0, buffer.added - buffer.capacity), buffer.added) % buffer.capacity
    batch = buffer.frames(order) if len(order) else None
    return [described(batch, i) for i in range(len(order))]


def observations_of(frames):
    """How many different observations frames have: the rows that no storage of them can do without."""
    return len({tuple(map(tuple, leaves)) for frame in frames for leaves in (frame[:2], frame[4:6])})


def test_frames_of_one_environment_share_their_observations():
    buffer, envs = ReplayBuffer(100), Envs()
    for _ in range(20):
        envs.step(buffer, [0, 1])
    assert held(buffer) == envs.added
    assert buffer.observation_rows == 42


def test_what_was_acted_on_is_kept_where_a_client_has_observed_once_more():
    """Lesson 1: a stored transition is what its client sent, also in real time, where the world moves on meanwhile."""
    buffer, flags = ReplayBuffer(3), np.zeros(2, bool)
    frames = {"action": flags, "reward": np.zeros(2, np.float32), "terminated": flags, "truncated": flags}
    nodes, sent = [NO_NODE, NO_NODE], []
    for obs, next_obs in (([0, 10], [1, 11]), ([1, 11.5], [2, 12]), ([2.5, 12], [3, 13])):
        before, after = (np.array(column, np.float32)[:, None] for column in (obs, next_obs))
        nodes = buffer.add(obs=before, next_obs=after, **frames, nodes=nodes)
        sent += zip(obs, next_obs, strict=True)
    batch = buffer.frames(np.arange(3, 6) % 3)
    assert list(zip(batch.obs[:, 0].tolist(), batch.next_obs[:, 0].tolist(), strict=True)) == sent[-3:]
    assert buffer.observation_rows == 5  # 11.5, 12 and 13 of one environment, 2.5 and 3 of the other


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_a_done_frame_keeps_its_final_observation(flag):
    buffer, envs = ReplayBuffer(10), Envs()
    envs.step(buffer, [0], **{flag: [0]})
    envs.step(buffer, [0])
    batch = buffer.frames(np.arange(2))
    assert batch.next_obs["states"].tolist() == [[0, 0, 1], [0, 1, 1]]
    assert batch.obs["states"].tolist() == [[0, 0, 0], [0, 1, 0]]
    assert getattr(batch, flag).tolist() == [True, False]


def test_a_discarded_frame_ends_the_chain():
    buffer, envs = ReplayBuffer(10), Envs()
    envs.step(buffer, [0])
    envs.step(buffer, [0], discarded=[0])
    envs.step(buffer, [0])
    assert held(buffer) == envs.added
    assert buffer.observation_rows == 4


def test_a_predecessor_that_is_overwritten_meanwhile_is_no_predecessor():
    """An environment that steps rarely: its last frame has left the ring when the next one comes."""
    buffer, envs = ReplayBuffer(3), Envs()
    envs.step(buffer, [7])
    for _ in range(5):
        envs.step(buffer, [0])
    envs.step(buffer, [7])
    assert held(buffer) == envs.added[-3:]


def test_a_message_larger_than_the_buffer_leaves_its_end():
    buffer, envs = ReplayBuffer(4), Envs()
    envs.step(buffer, list(range(11)))
    envs.step(buffer, list(range(11)))
    assert held(buffer) == envs.added[-4:]
    assert buffer.observation_rows == 8


def test_images_stay_uint8():
    buffer, envs = ReplayBuffer(8), Envs()
    envs.step(buffer, [0, 1])
    batch = buffer.sample(5, np.random.default_rng(0))
    assert batch.obs["images"]["camera"].dtype == batch.next_obs["images"]["camera"].dtype == np.uint8
    assert batch.obs["images"]["camera"].shape == (5, 1, 1, 3)


def test_memory_grows_with_the_frames(monkeypatch):
    monkeypatch.setattr(trees, "FIRST_ROWS", 4)
    buffer, envs = ReplayBuffer(1_000_000), Envs()
    assert buffer._observations.tree is None
    for _ in range(33):
        envs.step(buffer, [0])
        assert len(buffer.obs_row) <= max(4, 2 * len(buffer))
        assert len(buffer._observations.tree["states"]) <= 2 * (len(buffer) + 1) + 4
    assert held(buffer) == envs.added


def test_drawing_is_uniform_and_a_function_of_the_generator():
    buffer, envs = ReplayBuffer(8), Envs()
    for _ in range(12):
        envs.step(buffer, [0])
    draws = [buffer.sample(4000, np.random.default_rng(3)) for _ in range(2)]
    np.testing.assert_array_equal(draws[0].obs["states"], draws[1].obs["states"])
    steps, counts = np.unique(draws[0].obs["states"][:, 2], return_counts=True)
    assert steps.tolist() == list(range(4, 12))
    assert counts.min() > 420
    with pytest.raises(ValueError):
        ReplayBuffer(8).sample(1, np.random.default_rng(0))


def test_what_is_drawn_is_a_copy():
    buffer, envs = ReplayBuffer(2), Envs()
    envs.step(buffer, [0])
    batch = buffer.sample(1, np.random.default_rng(0))
    for _ in range(3):
        envs.step(buffer, [5])
    assert described(batch, 0) == envs.added[0]


def test_a_buffer_without_room_is_refused():
    with pytest.raises(ValueError, match="at least 1 frame, got 0"):
        ReplayBuffer(0)


# Any exchange ----------------------------------------------------------------------------------------------------

some = st.sets(st.integers(0, 5))
messages = st.lists(st.tuples(st.sets(st.integers(0, 5), min_size=1), some, some, some), max_size=25)


def play(buffer, envs, exchange):
    for present, terminated, truncated, discarded in exchange:
        ends = {"terminated": terminated & present, "truncated": truncated & present}
        envs.step(buffer, sorted(present), discarded=discarded, **{name: list(of) for name, of in ends.items()})


@given(messages, st.integers(1, 30))
def test_any_ragged_exchange_is_held_exactly_and_once(exchange, capacity):
    """Ring wrap-around, truncation, termination, both at once, discards, environments that come and go."""
    buffer, envs = ReplayBuffer(capacity), Envs()
    play(buffer, envs, exchange)
    assert held(buffer) == envs.added[-capacity:]
    assert buffer.observation_rows == observations_of(held(buffer))


@given(messages, messages, st.integers(1, 30))
def test_a_restored_buffer_goes_on_as_the_first_would_have(before, after, capacity):
    first, envs = ReplayBuffer(capacity), Envs()
    play(first, envs, before)
    second = ReplayBuffer(capacity)
    second.load_state_dict(trees.map_leaves(np.array, first.state_dict()))
    envs.nodes.clear()  # the environments' connections are new after a resume
    places = {env: list(place) for env, place in envs.places.items()}
    play(first, envs, after)
    envs.nodes.clear()
    envs.places, envs.added = places, []
    play(second, envs, after)
    assert held(second) == held(first)
    assert len(first) == len(second)
    if len(first):
        draws = [buffer.sample(16, np.random.default_rng(0)) for buffer in (first, second)]
        assert [described(draws[0], i) for i in range(16)] == [described(draws[1], i) for i in range(16)]


# On disk ---------------------------------------------------------------------------------------------------------


def test_it_is_stored_in_a_checkpoint_with_its_used_rows_only(tmp_path):
    buffer, envs = ReplayBuffer(1000), Envs()
    for step in range(30):
        envs.step(buffer, [0, 1, 2], truncated=[step % 3] if step % 5 == 0 else [])
    manager = CheckpointManager(tmp_path)
    manager.save(Checkpoint(step=1, meta={"replay": buffer.state_dict()}))
    state = manager.load().meta["replay"]
    assert trees.leading(state["frames"]) == 90
    assert trees.leading(state["observations"]) == observations_of(held(buffer))
    other = ReplayBuffer(1000)
    other.load_state_dict(state)
    assert held(other) == envs.added


def test_unused_rows_are_left_out():
    buffer, envs = ReplayBuffer(2), Envs()
    for env in range(4):
        envs.step(buffer, [env])
    envs.step(buffer, [3])
    assert buffer._observations.used > buffer.observation_rows
    state = buffer.state_dict()
    assert trees.leading(state["observations"]) == observations_of(held(buffer)) == 3
    other = ReplayBuffer(2)
    other.load_state_dict(state)
    assert held(other) == envs.added[-2:]


def test_an_empty_buffer_has_a_state():
    other = ReplayBuffer(4)
    other.load_state_dict(ReplayBuffer(4).state_dict())
    assert len(other) == 0


def test_a_ring_is_not_restored_into_another_capacity():
    buffer, envs = ReplayBuffer(4), Envs()
    for _ in range(3):
        envs.step(buffer, [0])
    larger = ReplayBuffer(5)
    larger.load_state_dict(buffer.state_dict())
    assert held(larger) == envs.added
    with pytest.raises(ValueError, match="3 frames of 3 were stored; this buffer holds 2"):
        ReplayBuffer(2).load_state_dict(buffer.state_dict())
    for _ in range(3):
        envs.step(buffer, [0])
    with pytest.raises(ValueError, match="4 frames of 6 were stored; this buffer holds 5"):
        ReplayBuffer(5).load_state_dict(buffer.state_dict())
