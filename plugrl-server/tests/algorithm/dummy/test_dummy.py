"""The dummy algorithm counts, on any policy."""

import time

import numpy as np
import pytest
from plugrl_server.algorithm.base_algorithm import NO_NODE, FeedbackRows
from plugrl_server.algorithm.dummy.dummy import DummyAlgorithm
from plugrl_server.algorithm.dummy.dummy_config import DummyAlgoConfig
from plugrl_server.policy.base_policy import BasePolicy, BasePolicyConfig
from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig


def algorithm(policy=None, **changes):
    return DummyAlgorithm(DummyAlgoConfig(**changes), policy or DummyPolicy(DummyPolicyConfig()))


def rows(m, done=False):
    flags = np.zeros(m, bool)
    info = [{"episode": {"r": float(i)}} for i in range(m)]
    nodes = [NO_NODE] * m
    return FeedbackRows({}, None, None, flags, flags, {}, np.zeros(m, "f4"), info, np.full(m, done), flags, nodes)


def test_it_asks_the_policy():
    obs = {"images": {}, "states": {"s": np.zeros((3, 1))}, "text": np.full(3, "")}
    action, runtime_state = algorithm().infer(obs)
    assert action.shape == (3, 4, 7)
    assert runtime_state is None


def test_frames_are_counted_one_by_one_or_by_the_message():
    one, many = algorithm(), algorithm()
    message = rows(4, done=True)
    nodes = [one.feedback(**message.row(i))[0] for i in range(4)]
    assert many.feedback_rows(message) == 4
    assert message.nodes == nodes
    assert one.global_step == many.global_step == 4
    assert one.episodes.metrics() == many.episodes.metrics() == {"rollout/reward": 1.5}


def test_it_stops_at_global_steps():
    counting = algorithm(global_steps=5)
    counting.feedback_rows(rows(4))
    assert not counting.should_stop()
    counting.feedback_rows(rows(4))
    assert counting.should_stop()
    assert not counting.should_learn()
    assert not counting.should_save()
    endless = algorithm(global_steps=None)
    endless.feedback_rows(rows(4))
    assert not endless.should_stop()


def test_it_learns_when_asked_and_takes_no_frame_beyond():
    learning = algorithm(learn_every=3)
    message = rows(4)
    assert learning.feedback_rows(message) == 3
    assert message.nodes[3] == NO_NODE
    assert learning.should_learn()
    assert learning.feedback_rows(rows(1)) == 0
    assert learning.learn() == (3, {})
    assert not learning.should_learn()


def test_it_saves_when_asked_and_goes_on_from_there():
    first = algorithm(save_interval=2, learn_every=4)
    first.feedback_rows(rows(3))
    assert first.should_save()
    checkpoint = first.create_checkpoint()
    assert not first.should_save()
    second = algorithm(save_interval=2, learn_every=4)
    second.load_checkpoint(checkpoint.copy())
    assert (second.global_step, second.should_save(), second.should_learn()) == (3, False, False)
    obs = {"text": np.full(2, "")}
    np.testing.assert_array_equal(first.infer(obs)[0], second.infer(obs)[0])


def test_a_policy_without_weights_can_be_saved():
    class Still(BasePolicy):
        def get_action_and_runtime_state(self, obs):
            return np.zeros((1, 1, 1)), None

    still = algorithm(Still(BasePolicyConfig()))
    checkpoint = still.create_checkpoint()
    assert checkpoint.model is None
    still.load_checkpoint(checkpoint)


@pytest.mark.parametrize(("flag", "call"), [("infer_sleep_ms", "infer"), ("learn_sleep_ms", "learn")])
def test_pretended_costs_are_slept(monkeypatch, flag, call):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    for milliseconds in (0.0, 250.0):
        slow = algorithm(**{flag: milliseconds})
        slow.infer({"text": np.full(1, "")}) if call == "infer" else slow.learn()
    assert slept == [0.25]
