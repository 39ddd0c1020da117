"""The rules around one algorithm: what is stored, what is saved, whose fault an error is."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
from plugrl_server.algorithm.base_algorithm import BaseAlgorithm
from plugrl_server.algorithm.feedback_rows import NO_NODE, Client, FeedbackRows
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.policy.base_policy import BasePolicy
from plugrl_server.training.accounting import Discard
from plugrl_server.training.trainer import AlgorithmError, Trainer, UnsoundPolicyError, all_finite


class Recorder(BaseAlgorithm):
    """Stores the rewards it is given; wants to learn from `fill` on."""

    def __init__(self, fill=None, on_policy=True, **hooks):
        super().__init__(config=None, policy=SimpleNamespace())
        self.fill, self.on_policy = fill, on_policy
        self.stored, self.discarded, self.finished = [], [], 0
        self.weights, self.saves = np.zeros(1), 0
        for name, hook in hooks.items():
            setattr(self, name, hook)

    def infer(self, obs):
        n = len(obs["text"])
        return np.zeros((n, 2, 3), np.float32), {"n": np.arange(n)}

    def derive_train_state(self, runtime_state):
        return runtime_state["n"] + 100

    def feedback(self, *, reward, **row):
        self.stored.append(reward)
        return (len(self.stored), "stored"), self.global_step + 1, {"at": reward}

    def discard_feedback(self, *, info, next_terminated, next_truncated):
        self.discarded.append((info.get("id"), next_terminated, next_truncated))

    def note_finished_episodes(self, count):
        self.finished += count

    def learn_impl(self):
        self.weights += 1
        self.stored.clear()
        return self.global_step, {"losses/loss": 0.5}

    def should_learn(self):
        return self.fill is not None and len(self.stored) >= self.fill

    def should_save(self):
        return self.saves == 0

    def should_stop(self):
        return False

    def create_checkpoint(self):
        self.saves += 1
        return Checkpoint(step=self.global_step, model={"weights": self.weights})

    def load_checkpoint(self, checkpoint):
        pass


def rows(rewards, done=None, nodes=None):
    m = len(rewards)
    flags = np.zeros(m, np.bool_)
    obs = {"images": {}, "states": {"obs": np.arange(m)[:, None]}, "text": np.array([""] * m)}
    return FeedbackRows(
        obs=obs,
        runtime_state=None,
        train_state=(np.arange(m),),
        terminated=flags,
        truncated=flags,
        next_obs=obs,
        reward=np.array(rewards, np.float32),
        info=[{"id": i} for i in range(m)],
        next_terminated=np.array(done) if done else flags,
        next_truncated=flags,
        nodes=nodes or [(7, "before")] * m,
    )


def trainer_of(algorithm, **options):
    saved = []

    def save(checkpoint):
        saved.append(copy.deepcopy(checkpoint))
        return f"checkpoint-{len(saved)}"

    return Trainer(algorithm, save=save, **options), saved


OBS = {"images": {}, "states": {}, "text": np.array(["", ""])}


def test_an_inference_carries_states_and_version():
    trainer, _ = trainer_of(Recorder())
    trainer.version = 3
    inference = trainer.infer(OBS, 2)
    assert inference.action.shape == (2, 2, 3)
    assert inference.runtime_state["n"].tolist() == [0, 1]
    assert inference.train_state.tolist() == [100, 101]
    assert inference.version == 3


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_actions_that_are_not_finite_are_never_handed_out(bad):
    """Lesson 3."""
    trainer, _ = trainer_of(Recorder(infer=lambda obs: (np.full((2, 1, 1), bad), None), derive_train_state=lambda s: s))
    with pytest.raises(UnsoundPolicyError, match="not finite"):
        trainer.infer(OBS, 2)


def test_actions_of_the_wrong_shape_name_the_shape():
    trainer, _ = trainer_of(Recorder(infer=lambda obs: (np.zeros((3, 1)), None), derive_train_state=lambda s: s))
    with pytest.raises(AlgorithmError, match=r"infer failed: expected actions \[n=2, H, ...\], got shape \[3, 1\]"):
        trainer.infer(OBS, 2)


def test_an_error_names_the_call_and_the_line():
    def broken(obs):
        raise ZeroDivisionError("no")

    trainer, _ = trainer_of(Recorder(infer=broken))
    with pytest.raises(AlgorithmError, match=r"infer failed: ZeroDivisionError: no \(test_trainer.py, line \d+\)"):
        trainer.infer(OBS, 2)


@pytest.mark.parametrize("versions", [0, np.zeros(3, np.int64)], ids=["one for all", "one a row"])
def test_rows_are_stored_in_order_and_get_new_nodes(versions):
    trainer, _ = trainer_of(Recorder())
    batch = rows([1, 2, 3])
    assert trainer.record(batch, versions) == {}
    assert trainer.algorithm.stored == [1, 2, 3]
    assert batch.nodes == [(1, "stored"), (2, "stored"), (3, "stored")]
    assert trainer.drain_logs() == [(1, {"at": 1.0}), (2, {"at": 2.0}), (3, {"at": 3.0})]


def test_on_policy_rows_of_an_older_version_are_discarded():
    """algorithms.md, rule 3."""
    trainer, _ = trainer_of(Recorder())
    trainer.version = 2
    batch = rows([1, 2, 3])
    assert trainer.record(batch, np.array([2, 1, 2])) == {Discard.STALE: 1}
    assert trainer.algorithm.stored == [1, 3]
    assert batch.nodes == [(1, "stored"), NO_NODE, (2, "stored")]
    assert trainer.algorithm.discarded == [(1, False, False)]
    assert trainer.record(rows([4, 5]), 1) == {Discard.STALE: 2}


def test_off_policy_rows_are_stored_whatever_their_version():
    trainer, _ = trainer_of(Recorder(on_policy=False, fill=1))
    trainer.version = 2
    assert trainer.record(rows([1, 2, 3]), np.array([0, 1, 2])) == {}
    assert trainer.algorithm.stored == [1, 2, 3]


def test_an_off_policy_hook_is_offered_the_rest_again():
    taken = []

    def one_at_a_time(batch):
        taken.append(float(batch.reward[0]))
        batch.nodes[0] = (len(taken), "hook")
        return 1

    trainer, _ = trainer_of(Recorder(on_policy=False, feedback_rows=one_at_a_time))
    batch = rows([1, 2, 3])
    assert trainer.record(batch, 0) == {}
    assert taken == [1, 2, 3]
    assert batch.nodes == [(1, "hook"), (2, "hook"), (3, "hook")]


def test_rows_after_the_buffer_is_full_are_discarded():
    trainer, _ = trainer_of(Recorder(fill=2))
    batch = rows([1, 2, 3], done=[False, False, True])
    assert trainer.record(batch, 0) == {Discard.LEARNING: 1}
    assert trainer.record(rows([4]), 0) == {Discard.LEARNING: 1}
    assert trainer.algorithm.stored == [1, 2]
    assert batch.nodes[2] == NO_NODE
    assert trainer.algorithm.discarded == [(2, True, False), (0, False, False)]


@pytest.mark.parametrize("on_policy", [True, False])
def test_rows_that_are_not_finite_never_reach_the_algorithm(on_policy):
    """Lesson 3."""
    trainer, _ = trainer_of(Recorder(on_policy=on_policy))
    batch = rows([1, np.nan, 3])
    assert trainer.record(batch, 0, np.array([True, False, True])) == {Discard.NOT_FINITE: 1}
    assert trainer.algorithm.stored == [1, 3]
    assert batch.nodes[1] == NO_NODE


def test_picked_rows_keep_whose_they_are():
    algorithm = Recorder()
    seen = []
    algorithm.feedback_rows = lambda rows: seen.append((rows.client, rows.env_indices.tolist())) or len(rows)
    trainer, _ = trainer_of(algorithm)
    message, client = rows([1.0, 2.0, 3.0]), Client((4, 5, 6))
    message.client, message.env_indices = client, np.array([4, 5, 6])
    trainer.record(message, 0, finite=np.array([True, False, True]))
    assert seen == [(client, [4, 6])]


def test_reasons_add_up_when_they_mix():
    trainer, _ = trainer_of(Recorder(fill=1))
    trainer.version = 1
    reasons = trainer.record(rows([1, 2, 3, 4]), np.array([1, 1, 0, 1]), np.array([True, False, True, True]))
    assert reasons == {Discard.NOT_FINITE: 1, Discard.STALE: 1, Discard.LEARNING: 1}
    assert trainer.algorithm.stored == [1]


def test_finished_episodes_are_noted_for_stored_and_discarded_rows():
    trainer, _ = trainer_of(Recorder(fill=1))
    trainer.record(rows([1, 2, 3], done=[True, True, False]), 0)
    assert trainer.algorithm.finished == trainer.finished_episodes == 2


def test_a_learn_step_raises_the_version_and_reports():
    told = []
    trainer, _ = trainer_of(Recorder(fill=1), on_learn=lambda step, metrics: told.append((step, metrics)))
    trainer.record(rows([1, 2]), 0)
    step, metrics = trainer.learn()
    assert (step, trainer.version) == (1, 1)
    assert metrics["losses/loss"] == 0.5
    assert metrics["server/discarded_frames"] == 1
    assert metrics["server/policy_version"] == 1
    assert metrics["time/learn_seconds"] >= 0
    assert told == [(step, metrics)]
    assert trainer.learn()[1]["server/discarded_frames"] == 0


def test_learn_steps_that_report_nothing_are_told_with_the_next_that_does():
    reports = iter([None, None, {"losses/loss": 0.5}])
    told = []
    algorithm = Recorder(on_policy=False, learn_impl=lambda: (3, next(reports)))
    trainer = Trainer(algorithm, save=lambda checkpoint: None, on_learn=lambda *row: told.append(row))
    algorithm.record_episode_metrics({"r": 2.0})
    for _ in range(2):
        trainer.discard([{}], *np.zeros((2, 1), np.bool_))
        assert trainer.learn() == (3, {})
    assert told == []
    algorithm.record_episode_metrics({"r": 4.0})
    step, metrics = trainer.learn()
    assert told == [(step, metrics)]
    assert metrics["rollout/reward"] == 3.0
    assert metrics["server/discarded_frames"] == 2
    assert metrics["server/policy_version"] == trainer.version == 3
    assert metrics["time/learn_seconds"] > 0
    assert algorithm.episodes.metrics() == {}


def test_a_learn_step_after_each_of_many_messages_is_no_symptom():
    trainer = Trainer(Recorder(on_policy=False), save=lambda checkpoint: None)
    for _ in range(150):
        trainer.record(rows([1.0]), 0)
        trainer.learn()
    assert trainer.symptoms.learns_in_a_row == 1
    assert trainer.symptoms.drain() == []


def test_the_same_state_is_saved_once():
    trainer, saved = trainer_of(Recorder())
    assert trainer.save() == "checkpoint-1"
    assert trainer.save() is None
    trainer.learn()
    assert trainer.save() == "checkpoint-2"
    assert trainer.saved == "checkpoint-2"
    assert len(saved) == 2


def test_a_learn_step_leaves_should_save_alone():
    trainer, _ = trainer_of(Recorder())
    trainer.learn()
    assert trainer.should_save()


def test_closing_is_passed_on():
    closed = []
    Trainer(Recorder(close=lambda: closed.append(True)), save=None).close()
    assert closed == [True]


@pytest.mark.parametrize("on_policy", [True, False])
def test_a_failed_learn_step_never_leaves_a_half_updated_checkpoint(on_policy):
    """Lesson 9: the state from before the step is what is saved, where there is a copy of it."""

    def half():
        trainer.algorithm.weights += 1
        raise RuntimeError("half way")

    trainer, saved = trainer_of(Recorder(on_policy=on_policy, learn_impl=half))
    with pytest.raises(AlgorithmError, match="learn failed: RuntimeError: half way"):
        trainer.learn()
    assert trainer.version == 0
    trainer.save()
    assert [checkpoint.model["weights"].tolist() for checkpoint in saved] == ([[0.0]] if on_policy else [])


class Weights(BasePolicy):
    """A policy that knows whether its weights are lost."""

    lost = False

    def get_action_and_runtime_state(self, obs):
        raise AssertionError(obs)

    def weights_are_finite(self):
        return not self.lost


@pytest.mark.parametrize("on_policy", [True, False])
def test_weights_that_are_not_finite_are_never_saved(on_policy):
    """Lesson 3: on-policy the state before the learn step is saved, off-policy the last checkpoint stands."""

    def lose():
        trainer.algorithm.weights += np.nan
        trainer.policy.lost = True
        return 0, {}

    trainer, saved = trainer_of(Recorder(on_policy=on_policy, learn_impl=lose, policy=Weights(None)))
    lost = "learn failed: the policy's weights are not finite any more"
    if on_policy:
        with pytest.raises(AlgorithmError, match=lost):
            trainer.learn()
        trainer.save()
    else:
        trainer.learn()
        with pytest.raises(UnsoundPolicyError, match=lost):
            trainer.save()
    assert [checkpoint.model["weights"].tolist() for checkpoint in saved] == ([[0.0]] if on_policy else [])


def test_saving_during_a_learn_step_saves_the_state_before_it():
    """Lesson 9."""

    def learn():
        trainer.algorithm.weights += 1
        trainer.save()
        trainer.algorithm.weights += 1
        return 0, {}

    trainer, saved = trainer_of(Recorder(learn_impl=learn))
    trainer.learn()
    trainer.save()
    assert [checkpoint.model["weights"].tolist() for checkpoint in saved] == [[0.0], [2.0]]


@pytest.mark.parametrize(
    ("numbers", "finite"),
    [([], True), ([0.0, 1e308, -1e308], True), ([1.0, np.nan], False), ([np.inf, -np.inf], False)],
)
@pytest.mark.parametrize("shape", [(-1,), (1, -1)])
def test_all_finite(numbers, finite, shape):
    assert all_finite(np.array(numbers).reshape(shape)) is finite
