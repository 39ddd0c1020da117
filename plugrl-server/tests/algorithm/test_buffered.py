"""What algorithms with a buffer share, with one whose buffer is a list of what it was handed."""

import numpy as np
from plugrl_server.algorithm.buffered import BufferedAlgorithm
from plugrl_server.algorithm.feedback_rows import FeedbackRows


class Policy:
    def observe(self, obs):
        return obs["states"]["s"].astype(np.float32)


class Listing(BufferedAlgorithm):
    infer = learn_impl = should_learn = should_save = should_stop = create_checkpoint = load_checkpoint = None
    distributed_modules = learn_batch = lambda self: {}

    def __init__(self):
        super().__init__(config=None, policy=Policy())
        self.added = []

    def _add(self, train_state, **frames):
        self.added.append({"train_state": train_state, **frames, "nodes": list(frames["nodes"])})
        return [(number + 1, "list") for number, _ in frames["nodes"]]


def message(m=4):
    """Environment 1 terminates, 2 is truncated; the outcomes of the frames before are others."""
    return FeedbackRows(
        obs={"states": {"s": np.arange(m)[:, None]}},
        runtime_state=None,
        train_state=np.arange(m) * 10,
        terminated=np.arange(m) == 0,
        truncated=np.arange(m) == 3,
        next_obs={"states": {"s": np.arange(m)[:, None] + 1}},
        reward=np.arange(m, dtype=np.float32),
        info=[{"episode": {"r": float(i)}} for i in range(m)],
        next_terminated=np.arange(m) == 1,
        next_truncated=np.arange(m) == 2,
        nodes=[(i, "list") for i in range(m)],
    )


def test_a_message_is_stored_by_one_call_with_each_frames_own_outcome():
    algorithm, rows = Listing(), message()
    assert algorithm.feedback_rows(rows) == 4
    (added,) = algorithm.added
    assert {name: np.asarray(value).tolist() for name, value in added.items() if name != "nodes"} == {
        "train_state": [0, 10, 20, 30],
        "obs": [[0], [1], [2], [3]],
        "next_obs": [[1], [2], [3], [4]],
        "reward": [0, 1, 2, 3],
        "terminated": [False, True, False, False],
        "truncated": [False, False, True, False],
    }
    assert added["obs"].dtype == np.float32  # as the policy reads it
    assert added["nodes"] == [(i, "list") for i in range(4)]
    assert rows.nodes == [(i + 1, "list") for i in range(4)]


def test_rows_are_counted_and_the_episodes_they_end_are_recorded():
    algorithm = Listing()
    algorithm.feedback_rows(message())
    assert algorithm.global_step == 4
    assert algorithm.episodes.recorded == 2
    assert algorithm.episodes.metrics() == {"rollout/reward": 1.5}


def test_one_frame_is_a_message_of_one():
    one, many = Listing(), Listing()
    many.feedback_rows(message())
    answers = [one.feedback(**message().row(i)) for i in range(4)]
    assert answers == [((i + 1, "list"), i + 1, {}) for i in range(4)]
    assert one.episodes.metrics() == many.episodes.metrics()
    for name in ("train_state", "obs", "next_obs", "reward", "terminated", "truncated", "nodes"):
        parts = [np.asarray(added[name]) for added in one.added]
        np.testing.assert_array_equal(np.concatenate(parts), many.added[0][name])


def test_the_train_state_is_the_sample():
    assert Listing().derive_train_state({"sample": 3, "chain": 4}) == 3
