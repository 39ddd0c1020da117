"""A sound algorithm keeps the contract; for every clause there is a broken one that fails that clause and no other."""

from unittest import SkipTest

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.base_algorithm import BaseAlgoConfig, BaseAlgorithm
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.policy.base_policy import BaseTorchPolicyConfig
from plugrl_server.policy.base_torch_policy import BaseTorchPolicy
from plugrl_server.testing import AlgorithmContract, ContractBroken


class Actor(BaseTorchPolicy):
    """A linear mean with a little noise, and weights that nobody trains."""

    def __init__(self):
        super().__init__(BaseTorchPolicyConfig(device="cpu"))
        self.actor, self.spare = torch.nn.Linear(3, 2), torch.nn.Linear(1, 1)

    def get_action_and_runtime_state(self, obs):
        with torch.no_grad():
            mean = self.actor(torch.from_numpy(obs["states"]["obs"]).float()).numpy()
        sample = mean + 0.1 * self.rng.standard_normal(mean.shape, dtype=np.float32)
        return sample[:, None].clip(-1, 1), {"sample": sample}

    def fake_obs(self, n):
        return {"images": {}, "states": {"obs": np.zeros((n, 3))}, "text": np.full(n, "")}


class Toy(BaseAlgorithm):
    """Regresses the mean on the better samples of 8 frames, by Adam."""

    def __init__(self):
        super().__init__(BaseAlgoConfig(global_steps=10_000), Actor())
        self.frames, self.iteration, self.saved = [], 0, 0

    def init_optimizers(self):
        self.optimizer = torch.optim.Adam(self.policy.actor.parameters())

    def infer(self, obs):
        return self.policy.get_action_and_runtime_state(obs)

    def derive_train_state(self, runtime_state):
        return runtime_state["sample"]

    def feedback(self, *, obs, train_state, reward, info, next_terminated, next_truncated, **_):
        self.frames.append([obs["states"]["obs"][0], train_state[0], reward])
        self.record_finished_episode(info, next_terminated, next_truncated)
        return (len(self.frames), "toy"), self.global_step + 1, {}

    def learn_impl(self):
        obs, sample, reward = (torch.from_numpy(np.array(part, np.float32)) for part in zip(*self.frames, strict=True))
        error = (self.policy.actor(obs) - sample).square().sum(1)
        loss = ((1 + reward) * error).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.frames.clear()
        self.iteration += 1
        return self.global_step, {"losses/loss": loss.item()}

    def should_learn(self):
        return len(self.frames) >= 8

    def should_save(self):
        return self.iteration - self.saved >= 2

    def should_stop(self):
        return self.global_step >= self.config.global_steps

    def create_checkpoint(self):
        self.saved = self.iteration
        meta = {"frames": list(self.frames), "iteration": self.iteration, "saved": self.saved}
        return Checkpoint(self.global_step, self.policy.state_dict(), self.optimizer.state_dict(), meta)

    def load_checkpoint(self, checkpoint):
        self.global_step, meta = checkpoint.step, checkpoint.meta
        self.policy.load_state_dict(checkpoint.model)
        self.optimizer.load_state_dict(checkpoint.optimizer)
        self.frames, self.iteration, self.saved = list(meta["frames"]), meta["iteration"], meta["saved"]


class OffPolicyToy(Toy):
    """The same from every frame, whoever acted."""

    on_policy = False


class OverridesLearn(Toy):
    def learn(self):
        return super().learn()


class DoubleExample(Toy):
    def example_train_state(self, n):
        return super().example_train_state(n).astype(np.float64)


class RecordsNothing(Toy):
    def feedback(self, *, info, **frame):
        return super().feedback(info={}, **frame)


class DiscardsSilently(Toy):
    def discard_feedback(self, **_):
        pass


class NeverClearsEpisodes(Toy):
    def post_learn(self):
        pass


class LearnsOn(OffPolicyToy):
    """Twenty learn steps in a row for every eight frames."""

    def learn_impl(self):
        frames = list(self.frames)
        told = super().learn_impl()
        self.frames = frames if self.iteration % 20 else []
        return told


class TellsNaN(Toy):
    def learn_impl(self):
        return super().learn_impl()[0], {"losses/loss": float("nan")}


class ForgetsTheGroup(Toy):
    def learn_impl(self):
        return super().learn_impl()[0], {"loss": 0.0}


class LearnsWhileRecording(Toy):
    def feedback(self, **frame):
        with torch.no_grad():
            self.policy.actor.bias += 1e-3
        return super().feedback(**frame)


class TrainsTooMuch(Toy):
    def learn_impl(self):
        with torch.no_grad():
            self.policy.spare.bias += 1e-3
        return super().learn_impl()


class TrainsTooLittle(Toy):
    def init_optimizers(self):
        self.optimizer = torch.optim.Adam([self.policy.actor.bias])


class TakesTooMany(Toy):
    def feedback_rows(self, rows):
        for i in range(len(rows)):
            rows.nodes[i], self.global_step, _ = self.feedback(**rows.row(i))
        return len(rows)


class CountsMessages(OffPolicyToy):
    def feedback_rows(self, rows):
        before = self.global_step
        taken = super().feedback_rows(rows)
        self.global_step = before + 1
        return taken


class StopsLate(Toy):
    def should_stop(self):
        return self.global_step >= 2 * self.config.global_steps


class StopsEarly(Toy):
    def should_stop(self):
        return self.global_step > 0


class SavesOn(Toy):
    def create_checkpoint(self):
        before = self.saved
        checkpoint = super().create_checkpoint()
        self.saved = checkpoint.meta["saved"] = before
        return checkpoint


class ActsByWhatIsNotSaved(Toy):
    gain = 1.0

    def infer(self, obs):
        action, state = super().infer(obs)
        return self.gain * action, state

    def learn_impl(self):
        self.gain *= 0.5
        return super().learn_impl()


class LosesTheOptimizer(Toy):
    def load_checkpoint(self, checkpoint):
        fresh = self.optimizer.state_dict()
        super().load_checkpoint(checkpoint)
        self.optimizer.load_state_dict(fresh)


class SavesByWhatIsNotSaved(Toy):
    """Saves at every third iteration, counted from the start of the process."""

    learned = saved_learned = 0

    def learn_impl(self):
        self.learned += 1
        return super().learn_impl()

    def should_save(self):
        return self.learned % 3 == 0 and self.learned != self.saved_learned

    def create_checkpoint(self):
        self.saved_learned = self.learned
        return super().create_checkpoint()


BROKEN = {
    OverridesLearn: "learn_is_left_to_the_base_class",
    DoubleExample: "buffers_are_sized_by_example_train_state",
    RecordsNothing: "feedback_records_episodes",
    DiscardsSilently: "discarded_episodes_are_recorded",
    NeverClearsEpisodes: "a_learn_step_ends_the_count_of_episodes",
    LearnsOn: "should_learn_falls_after_learning",
    TellsNaN: "metrics_are_finite_numbers",
    ForgetsTheGroup: "metrics_are_finite_numbers",
    LearnsWhileRecording: "acting_and_recording_change_no_weights",
    TrainsTooMuch: "learning_changes_what_it_should",
    TrainsTooLittle: "learning_changes_what_it_should",
    TakesTooMany: "a_message_is_stored_like_its_rows",
    CountsMessages: "frames_are_stored_by_the_rule",
    StopsLate: "it_stops_at_global_steps",
    StopsEarly: "it_stops_at_global_steps",
    SavesOn: "should_save_falls_after_a_checkpoint",
    ActsByWhatIsNotSaved: "a_checkpoint_restores_the_policy",
    LosesTheOptimizer: "a_checkpoint_restores_every_part",
    SavesByWhatIsNotSaved: "a_resumed_run_keeps_its_cadence",
}
CLAUSES = [name.removeprefix("test_") for name in dir(AlgorithmContract) if name.startswith("test_")]


def contract(algorithm, **attributes):
    """The contract of one class of algorithm, as its author would write it."""
    names = {"make_algorithm": lambda self: algorithm(), "untrained": ("spare.",), "exchanges": 100, **attributes}
    return type("TestIt", (AlgorithmContract,), names)()


def broken_clauses(kept):
    broken = {}
    for clause in CLAUSES:
        try:
            getattr(kept, f"test_{clause}")()
        except ContractBroken as error:
            broken[clause] = str(error)
        except SkipTest:
            pass
    return broken


@pytest.mark.parametrize("sound", [Toy, OffPolicyToy])
def test_a_sound_algorithm_keeps_every_clause(sound):
    assert broken_clauses(contract(sound)) == {}


@pytest.mark.parametrize("algorithm", BROKEN, ids=lambda algorithm: algorithm.__name__)
def test_a_broken_algorithm_fails_its_clause_and_no_other(algorithm):
    assert list(broken_clauses(contract(algorithm))) == [BROKEN[algorithm]]


def test_every_clause_has_a_broken_algorithm():
    assert set(CLAUSES) == set(BROKEN.values())


def test_an_algorithm_that_learns_for_ever_is_caught_in_finite_time():
    class Stuck(Toy):
        def should_learn(self):
            return self.iteration > 0 or super().should_learn()

        def learn_impl(self):
            self.iteration += 1
            return self.global_step, {}

    with pytest.raises(ContractBroken, match="should_learn\\(\\) is still true after 64 learn steps"):
        contract(Stuck).test_should_learn_falls_after_learning()


def test_an_algorithm_that_never_learns_says_so_or_fails():
    class Idle(Toy):
        def should_learn(self):
            return False

    with pytest.raises(ContractBroken, match=r"0 learn steps within 20 exchanges .* `learns = False`"):
        contract(Idle, exchanges=20).test_metrics_are_finite_numbers()
    assert broken_clauses(contract(Idle, learns=False)) == {}


def test_frames_that_a_checkpoint_leaves_out_are_allowed_where_the_author_says_so():
    class Forgets(Toy):
        def load_checkpoint(self, checkpoint):
            super().load_checkpoint(checkpoint)
            self.frames.clear()

        def create_checkpoint(self):
            checkpoint = super().create_checkpoint()
            checkpoint.meta["frames"] = []
            return checkpoint

    assert list(broken_clauses(contract(Forgets))) == ["a_resumed_run_keeps_its_cadence"]
    assert broken_clauses(contract(Forgets, resumes_mid_iteration=False)) == {}


def test_the_method_to_write_is_named():
    with pytest.raises(TypeError, match=r"TestIt lacks make_algorithm"):
        type("TestIt", (AlgorithmContract,), {})().test_learn_is_left_to_the_base_class()
