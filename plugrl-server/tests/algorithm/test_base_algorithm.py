"""The contract between the server's loop and an algorithm."""

import numpy as np
import pytest
from plugrl_server.algorithm.base_algorithm import NO_NODE, BaseAlgoConfig, BaseAlgorithm, Client, FeedbackRows
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.common.config_error import ConfigError


class Recorder(BaseAlgorithm):
    """Keeps the arguments of every call; learns after `room` frames."""

    def __init__(self, room=100):
        super().__init__(config=BaseAlgoConfig(global_steps=10), policy=None)
        self.room = room
        self.frames = []

    def infer(self, obs):
        return np.zeros((1, 1, 1)), None

    def feedback(self, **frame):
        self.frames.append(frame)
        self.record_finished_episode(frame["info"], frame["next_terminated"], frame["next_truncated"])
        return (len(self.frames) - 1, "mine"), self.global_step + 1, {"x": frame["reward"]} if frame["reward"] else {}

    def learn_impl(self):
        return self.global_step, {"losses/x": 1.0}

    def should_learn(self):
        return len(self.frames) >= self.room

    def should_save(self):
        return False

    def should_stop(self):
        return False

    def create_checkpoint(self):
        return Checkpoint(step=self.global_step)

    def load_checkpoint(self, checkpoint):
        self.global_step = checkpoint.step


def rows(m=3, done=False, episodes=None):
    flags, done_flags = np.zeros(m, bool), np.full(m, done)
    info = [{} if episodes is None else {"episode": episodes[i]} for i in range(m)]
    obs = {"states": {"s": np.arange(m)[:, None]}}
    nodes = [NO_NODE] * m
    return FeedbackRows(obs, None, None, flags, flags, obs, np.arange(m, dtype="f4"), info, done_flags, flags, nodes)


def test_the_default_of_the_vectorised_hook_is_feedback_row_by_row():
    algorithm, message = Recorder(), rows()
    assert algorithm.feedback_rows(message) == 3
    assert message.nodes == [(0, "mine"), (1, "mine"), (2, "mine")]
    assert algorithm.global_step == 3
    assert [frame["obs"]["states"]["s"].tolist() for frame in algorithm.frames] == [[[0]], [[1]], [[2]]]
    assert algorithm.drain_logs() == [(2, {"x": 1.0}), (3, {"x": 2.0})]
    assert algorithm.drain_logs() == []


def test_should_learn_is_read_again_before_each_row():
    algorithm, message = Recorder(room=2), rows()
    assert algorithm.feedback_rows(message) == 2
    assert message.nodes == [(0, "mine"), (1, "mine"), NO_NODE]
    assert algorithm.feedback_rows(message.tail(2)) == 0


def test_rule_3_off_policy_takes_every_row():
    algorithm = Recorder(room=2)
    algorithm.on_policy = False
    assert algorithm.feedback_rows(rows()) == 3


def test_learn_adds_the_episodes_and_post_learn_forgets_them():
    algorithm = Recorder()
    algorithm.feedback_rows(rows(2, done=True, episodes=[{"r": 3.0}, {"r": 5.0}]))
    algorithm.note_finished_episodes(2)
    algorithm.pre_learn()
    assert algorithm.learn() == (2, {"rollout/reward": 4.0, "losses/x": 1.0})
    algorithm.post_learn()
    assert algorithm.learn() == (2, {"losses/x": 1.0})


def test_discarded_frames_still_report_their_episodes():
    algorithm = Recorder()
    algorithm.discard_feedback(info={"episode": {"r": 7.0}}, next_terminated=False, next_truncated=True)
    algorithm.discard_feedback(info={"episode": {"r": 99.0}}, next_terminated=False, next_truncated=False)
    algorithm.discard_feedback(info={"episode": {"r": 99.0, "mask": False}}, next_terminated=True, next_truncated=False)
    algorithm.discard_feedback(info={}, next_terminated=True, next_truncated=False)
    assert algorithm.learn()[1]["rollout/reward"] == 7.0


def test_lesson_19_zero_only_where_episodes_ended_without_figures():
    algorithm = Recorder()
    algorithm.note_finished_episodes(0)
    assert "rollout/reward" not in algorithm.learn()[1]
    algorithm.note_finished_episodes(1)
    assert algorithm.learn()[1]["rollout/reward"] == 0.0


def test_the_defaults_of_the_contract():
    algorithm = Recorder()
    assert (algorithm.on_policy, algorithm.concurrent) == (True, False)
    assert algorithm.derive_train_state({"sample": 1}) is None
    assert algorithm.init_optimizers() is None


def test_an_algorithm_measures_nothing_takes_no_policy_over_and_refuses_none_unless_it_says_so():
    recorder = Recorder()
    recorder.note_client(Client((0,)))
    assert recorder.results() is None
    assert recorder.config.policy_record() is None
    recorder.config.check_policy("any", None)


def test_example_train_state_asks_the_policy_for_a_runtime_state():
    class Policy:
        def fake_runtime_state(self, n):
            return {"sample": np.zeros((n, 2))}

    class Keeping(Recorder):
        def derive_train_state(self, runtime_state):
            return runtime_state["sample"]

    algorithm = Keeping()
    algorithm.policy = Policy()
    assert algorithm.example_train_state(4).shape == (4, 2)


def test_rule_8_a_run_of_no_steps_is_refused():
    BaseAlgoConfig().check()
    with pytest.raises(ConfigError, match=r"--algo\.global-steps 0: must be at least 1"):
        BaseAlgoConfig(global_steps=0).check()
