"""Whatever is asked and reported, an env gets back exactly what it was last answered from (lessons 1 and 4)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_server.algorithm.feedback_rows import NO_NODE
from plugrl_server.serving.connection.env_memory import EnvMemory


def envs(*indices):
    return np.array(indices, np.int64)


def obs_of(*values, text=None, dtype=np.float64):
    states = np.array(values, dtype)[:, None]
    return {"images": {}, "states": {"obs": states}, "text": np.array(text or [""] * len(values))}


def ask(memory, indices, values, version=0, **options):
    tickets = np.array(values) * 10
    memory.remember(
        envs(*indices), obs_of(*values, **options), {"ticket": tickets, "none": None}, (tickets + 1,), version
    )


def taken(steps):
    return steps.obs["states"]["obs"][:, 0].tolist()


def test_what_was_asked_comes_back_as_it_is():
    memory = EnvMemory()
    obs = obs_of(1, 2)
    memory.remember(envs(4, 9), obs, None, None, 3)
    steps = memory.take(envs(4, 9))
    assert steps.held is None
    assert steps.obs is obs
    assert steps.versions == 3
    assert steps.nodes == [NO_NODE, NO_NODE]
    assert not steps.terminated.any()


def test_a_feedback_of_other_envs_gathers_from_several_requests():
    """SPEC 4.3: after the first early termination the two sets differ for good."""
    memory = EnvMemory()
    ask(memory, (0, 1, 2), (10, 11, 12), version=0)
    ask(memory, (7, 2), (17, 22), version=1)
    steps = memory.take(envs(2, 0, 7))
    assert steps.held.all()
    assert taken(steps) == [22, 10, 17]
    assert steps.runtime_state["ticket"].tolist() == [220, 100, 170]
    assert steps.runtime_state["none"] is None
    assert steps.train_state[0].tolist() == [221, 101, 171]
    assert steps.versions.tolist() == [1, 0, 1]


@pytest.mark.parametrize("again", [(3,), (3, 4)])
def test_a_step_state_is_used_once(again):
    """Lesson 4: duplicates and replays find nothing."""
    memory = EnvMemory()
    ask(memory, (3,), (1,))
    memory.take(envs(3))
    steps = memory.take(envs(*again))
    assert not steps.held.any()
    assert len(steps.versions) == 0


def test_asking_again_replaces_what_was_held_before():
    """A client may ask early (SPEC 5.3); the feedback then belongs to the second action, and to it only."""
    memory = EnvMemory()
    ask(memory, (0, 1), (1, 2))
    ask(memory, (5,), (3,))  # the first request goes to the store
    ask(memory, (1,), (4,))
    assert taken(memory.take(envs(1))) == [4]
    assert not memory.take(envs(1)).held.any()
    assert taken(memory.take(envs(0, 5))) == [1, 3]


def test_previous_flags_and_nodes_follow_each_env():
    memory = EnvMemory()
    ask(memory, (0, 1), (1, 2))
    memory.take(envs(0, 1))
    memory.settle(envs(0, 1), np.array([True, False]), np.array([False, True]), [(5, "a"), NO_NODE])
    ask(memory, (0, 1), (3, 4))
    steps = memory.take(envs(0, 1))
    assert (steps.terminated.tolist(), steps.truncated.tolist()) == ([True, False], [False, True])
    assert steps.nodes == [(5, "a"), NO_NODE]
    memory.settle(envs(1), np.array([False]), np.array([False]), [(6, "b")])
    ask(memory, (1, 0), (3, 4))
    steps = memory.take(envs(1, 0))
    assert steps.terminated.tolist() == [False, True]
    assert steps.nodes == [(6, "b"), (5, "a")]


def test_a_longer_text_or_a_wider_number_is_not_cut():
    memory = EnvMemory()
    ask(memory, (0,), (1,), text=["go"], dtype=np.float32)
    ask(memory, (1,), (2**40 + 0.5,), text=["go to the kitchen"])
    ask(memory, (2,), (3,), text=[""], dtype=np.float32)
    steps = memory.take(envs(1, 0))
    assert steps.obs["text"].tolist() == ["go to the kitchen", "go"]
    assert taken(steps) == [2**40 + 0.5, 1]


def test_texts_that_are_objects_are_kept_beside_those_that_are_not():
    """Lesson 2: what a very long text is read as."""
    memory = EnvMemory()
    ask(memory, [65_535], [1.0], text=np.array(["x" * 100_000], object))
    ask(memory, [0], [2.0], text=np.array(["go"]))
    steps = memory.take(envs(0, 65_535))

    assert [len(text) for text in steps.obs["text"]] == [2, 100_000]


def test_states_of_another_shape_are_refused():
    memory = EnvMemory()
    ask(memory, (0,), (1,))
    ask(memory, (1,), (1,))
    memory.remember(envs(2), obs_of(1), {"ticket": np.zeros((1, 2)), "none": None}, (np.zeros(1),), 0)
    with pytest.raises(ValueError, match=r"rows of shape \[2\] after rows of shape \[\]"):
        memory.take(envs(0))


def test_tensors_stay_tensors():
    torch = pytest.importorskip("torch")
    memory = EnvMemory()
    for env in (0, 1):
        memory.remember(envs(env), obs_of(env), torch.tensor([float(env)], requires_grad=True) * 2, None, 0)
    steps = memory.take(envs(1, 0))
    assert torch.equal(steps.runtime_state, torch.tensor([2.0, 0.0]))
    assert not steps.runtime_state.requires_grad


def test_the_highest_env_index_is_welcome():
    memory = EnvMemory()
    ask(memory, (65_535,), (1,))
    ask(memory, (0,), (2,))
    assert taken(memory.take(envs(65_535))) == [1]


some_envs = st.lists(st.integers(0, 11), min_size=1, max_size=6, unique=True)


@given(st.lists(st.tuples(some_envs, some_envs), max_size=25))
def test_any_conversation_agrees_with_a_dictionary(conversation):
    memory, holds, previous = EnvMemory(), {}, {}
    clock = 0
    for asked, reported in conversation:
        values = [clock + i for i in range(len(asked))]
        ask(memory, asked, values, version=clock)
        holds.update({env: (value, clock) for env, value in zip(asked, values, strict=True)})
        steps = memory.take(envs(*reported))
        held = [env in holds for env in reported]
        assert (steps.held is None and all(held)) or steps.held.tolist() == held
        known = [env for env in reported if env in holds]
        expected = [holds.pop(env) for env in known]
        assert (taken(steps) if known else []) == [value for value, _ in expected]
        versions = np.broadcast_to(steps.versions, len(known)).tolist()
        assert versions == [version for _, version in expected]
        assert steps.nodes == [previous.get(env, (False, NO_NODE))[1] for env in known]
        assert steps.terminated.tolist() == [previous.get(env, (False, NO_NODE))[0] for env in known]
        flags = np.array([(env + clock) % 2 == 0 for env in reported])
        nodes = [(clock, str(env)) for env in reported]
        memory.settle(envs(*reported), flags, ~flags, nodes)
        previous.update(zip(reported, zip(flags.tolist(), nodes, strict=True), strict=True))
        clock += 10
