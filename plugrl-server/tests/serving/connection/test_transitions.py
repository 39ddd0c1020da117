"""A feedback joined with what its actions were chosen from."""

from unittest.mock import MagicMock

import numpy as np
from plugrl_protocol.messages import Feedback
from plugrl_protocol.observation import Observation
from plugrl_server.algorithm.feedback_rows import NO_NODE, Client
from plugrl_server.serving.connection.env_memory import EnvMemory
from plugrl_server.serving.connection.transitions import join
from plugrl_server.training.accounting import Discard


def obs_of(values):
    return {"images": {}, "states": {"obs": np.array(values, float)[:, None]}, "text": np.array([""] * len(values))}


def feedback(envs, info=None):
    m = len(envs)
    return Feedback(
        env_indices=np.array(envs),
        step_ids=np.zeros(m, np.int64),
        observation=Observation(**obs_of([0.0] * m)),
        rewards=np.arange(m, dtype=np.float32),
        terminated=np.arange(m) == 0,
        truncated=np.zeros(m, np.bool_),
        info=info or {},
    )


def memory_with(envs, values):
    memory = EnvMemory()
    memory.remember(np.array(envs), obs_of(values), None, (np.array(values),), 4)
    return memory


def test_every_row_meets_its_step_state():
    next_obs = obs_of([5, 6])
    transitions = join(feedback([1, 2]), next_obs, None, memory_with([1, 2], [10, 20]))
    assert transitions.strangers() == []
    assert transitions.rows.obs["states"]["obs"].tolist() == [[10], [20]]
    assert transitions.rows.next_obs is next_obs
    assert transitions.rows.next_terminated.tolist() == [True, False]
    assert transitions.versions == 4
    assert transitions.all_nodes() == [NO_NODE, NO_NODE]


def test_rows_without_a_step_state_are_left_out_of_every_field():
    """Lesson 4, SPEC 7.6."""
    info = {"episode": {"r": np.array([1.0, 2.0, 3.0])}}
    finite = np.array([True, True, False])
    transitions = join(feedback([8, 1, 2], info), obs_of([4, 5, 6]), finite, memory_with([1, 2], [10, 20]))
    rows = transitions.rows
    assert transitions.strangers() == [0]
    assert rows.obs["states"]["obs"].tolist() == [[10], [20]]
    assert rows.next_obs["states"]["obs"].tolist() == [[5], [6]]
    assert rows.reward.tolist() == [1, 2]
    assert rows.next_terminated.tolist() == [False, False]
    assert [row["episode"]["r"] for row in rows.info] == [2.0, 3.0]
    assert transitions.finite.tolist() == [True, False]
    rows.nodes[:] = [(1, "a"), (2, "b")]
    assert transitions.all_nodes() == [NO_NODE, (1, "a"), (2, "b")]


def test_rows_say_whose_environments_they_are_of():
    client = Client()
    transitions = join(feedback([9, 2, 1]), obs_of([7, 6, 5]), None, memory_with([1, 2], [10, 20]), client)
    assert transitions.rows.client is client
    assert transitions.rows.env_indices.tolist() == [2, 1]


def test_a_feedback_of_strangers_only_has_no_rows():
    transitions = join(feedback([8]), obs_of([4]), None, memory_with([1], [10]))
    assert len(transitions.rows) == 0
    assert transitions.strangers() == [0]
    assert transitions.all_nodes() == [NO_NODE]


def test_recording_hands_strangers_to_discard_feedback_and_says_why():
    info = {"episode": {"r": np.array([1.0, 2.0, 3.0])}}
    transitions = join(feedback([8, 1, 2], info), obs_of([4, 5, 6]), None, memory_with([1, 2], [10, 20]))
    trainer = MagicMock()
    trainer.record.return_value = {Discard.STALE: 1}
    assert transitions.record(trainer) == {Discard.STALE: 1, Discard.NO_STEP_STATE: 1}
    assert trainer.record.call_args.args[0] is transitions.rows
    assert trainer.record.call_args.args[1] is transitions.versions
    [infos, terminated, truncated] = trainer.discard.call_args.args
    assert [row["episode"]["r"] for row in infos] == [1.0]
    assert (terminated.tolist(), truncated.tolist()) == ([True], [False])


def test_recording_nothing_but_strangers_records_no_rows():
    trainer = MagicMock()
    assert join(feedback([8]), obs_of([4]), None, memory_with([1], [10])).record(trainer) == {Discard.NO_STEP_STATE: 1}
    trainer.record.assert_not_called()
