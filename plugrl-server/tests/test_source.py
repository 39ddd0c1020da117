import copy
import dataclasses
import random

import numpy as np
import pytest
import torch
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import BoxSpace, Declaration, DiscreteSpace
from plugrl_server.algorithm.dummy.dummy import DummyAlgorithm
from plugrl_server.algorithm.dummy.dummy_config import DummyAlgoConfig
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.algorithm.registration import ALGORITHMS
from plugrl_server.assembly import CannotServe, Selection
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig
from plugrl_server.source import ResumeError, Source

BOX = Declaration(BoxSpace((2,), np.dtype("<f4"), np.full(2, -1, "<f4"), np.full(2, 1, "<f4")), "Env-v0", 1, None, None)
WIDE = Declaration(
    BoxSpace((3,), np.dtype("<f4"), np.full(3, -1, "<f4"), np.full(3, 1, "<f4")), "Env-v0", 1, None, None
)
CHOICE = Declaration(DiscreteSpace(2, 0), "Pole-v1", 1, None, None)
SEEN = Observation(images={}, states={"obs": np.zeros((4, 3))}, text=[""] * 4)


@pytest.fixture(autouse=True)
def untouched():
    threads, states = torch.get_num_threads(), (random.getstate(), np.random.get_state(), torch.get_rng_state())  # noqa: NPY002
    yield
    torch.set_num_threads(threads)
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    torch.set_rng_state(states[2])


@pytest.fixture
def declared():
    return []


@pytest.fixture
def make(declared, tmp_path):
    def maker(policy=None, algorithm=None, **options):
        policy_uid = "dummy-policy" if isinstance(policy, DummyPolicyConfig) else "gaussian-policy"
        algo_uid = "dummy" if isinstance(algorithm, DummyAlgoConfig) else "ppo"
        selection = Selection(policy_uid, "default", policy, algo_uid, "default", algorithm)
        return Source(
            selection,
            **{
                "seed": 3,
                "torch_threads": None,
                "save": lambda checkpoint: tmp_path,
                "on_declared": lambda *said: declared.append(said),
            }
            | options,
        )

    return maker


@pytest.fixture
def gaussian(make):
    return make(GaussianPolicyConfig(hidden_sizes=(4,)), PPOConfig())


def test_a_policy_that_needs_no_declaration_is_built_early(make):
    source = make(DummyPolicyConfig(), DummyAlgoConfig())
    source.build_early()
    assert source.describe() == {
        "algorithm": "DummyAlgorithm",
        "policy": "DummyPolicy",
        "action_horizon": 4,
        "action_dim": 7,
    }


def test_a_policy_sized_by_the_environment_waits_for_the_first_declaration(gaussian, declared):
    gaussian.build_early()
    assert gaussian.trainer is None
    assert set(gaussian.describe()) == {"algorithm", "policy"}
    trainer = gaussian.build(BOX, SEEN)
    assert trainer is gaussian.trainer
    assert gaussian.describe()["action_dim"] == 2
    assert declared == [(BOX, SEEN)]
    assert gaussian.parts()[0].config["obs_dim"] == 3


def test_flags_may_say_the_dimensions(make, declared):
    source = make(GaussianPolicyConfig(hidden_sizes=(4,), obs_dim=3, action_dim=2), PPOConfig())
    source.build_early()
    assert source.trainer is not None
    assert source.disagreement(BOX, SEEN) is None
    assert declared == [(BOX, SEEN)]
    source.disagreement(BOX, SEEN)
    assert len(declared) == 1


def test_a_first_client_that_cannot_be_served_gets_advice_and_the_next_one_may_do(gaussian):
    with pytest.raises(CannotServe, match=r"gaussian-policy needs a Box .*; Pole-v1 has .*categorical-policy"):
        gaussian.build(CHOICE, SEEN)
    assert gaussian.trainer is None
    gaussian.build(BOX, SEEN)
    assert gaussian.disagreement(WIDE, SEEN) == "action_dim 3, this run has 2"
    assert gaussian.disagreement(BOX, SEEN) is None


def test_nobody_agrees_with_what_is_not_built(gaussian):
    assert gaussian.disagreement(BOX, SEEN) == "the policy is not built yet"


def test_the_seed_decides_the_weights(make):
    def weights(seed):
        source = make(GaussianPolicyConfig(hidden_sizes=(4,)), PPOConfig(), seed=seed)
        return torch.cat([w.detach().ravel() for w in source.build(BOX, SEEN).policy.parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_a_checkpoint_is_restored_with_the_recorded_spaces(make):
    first = make(DummyPolicyConfig(), DummyAlgoConfig())
    first.build_early()
    first.trainer.algorithm.global_step = 40
    checkpoint = first.trainer.algorithm.create_checkpoint()
    again = make(DummyPolicyConfig(), DummyAlgoConfig())
    again.build_from(checkpoint, BOX, SEEN)
    assert again.trainer.global_step == 40
    assert again.describe()["action_dim"] == 2
    assert again.disagreement(WIDE, SEEN) == "action_dim 3, this run has 2"


def test_a_checkpoint_that_does_not_fit_is_an_error_with_its_reason(make, gaussian):
    """Lesson 22."""
    checkpoint = gaussian.build(BOX, SEEN).algorithm.create_checkpoint()
    other = make(GaussianPolicyConfig(hidden_sizes=(5,)), PPOConfig())
    with pytest.raises(
        ResumeError,
        match=r"^Checkpoint 0 does not fit this configuration: size mismatch for actor\.0\.weight: "
        r"\[4, 3\] in the checkpoint, \[5, 3\] here$",
    ):
        other.build_from(checkpoint, BOX, SEEN)
    with pytest.raises(ResumeError, match="needs a Box action space"):
        gaussian.build_from(Checkpoint(step=0), CHOICE, SEEN)


@pytest.mark.parametrize(("asked", "sizes", "threads"), [(3, (4,), 3), (None, (4,), 1), (None, (1200, 1200), 2)])
def test_small_networks_run_on_one_thread(make, asked, sizes, threads):
    torch.set_num_threads(2)
    make(GaussianPolicyConfig(hidden_sizes=sizes), PPOConfig(), torch_threads=asked).build(BOX, SEEN)
    assert torch.get_num_threads() == threads


def test_counters_that_a_checkpoint_holds_and_nobody_restores_are_told(make, monkeypatch):
    source = make(DummyPolicyConfig(), DummyAlgoConfig(save_interval=10))
    source.build_early()
    algorithm = source.trainer.algorithm
    algorithm.global_step = 25
    checkpoint = algorithm.create_checkpoint()
    source.build_from(checkpoint, None, None)
    assert source.trainer.symptoms.drain() == []
    monkeypatch.setattr(type(algorithm), "load_checkpoint", lambda self, checkpoint: None)
    source.build_from(checkpoint, None, None)
    [text] = source.trainer.symptoms.drain()
    assert "(step is 0, was 25; saved_at is 0, was 25)" in text


def test_flags_that_say_the_same_twice_are_told_before_the_run(make, caplog):
    @dataclasses.dataclass
    class Twice(DummyAlgoConfig):
        action_horizon: int = 4

    make(DummyPolicyConfig(), DummyAlgoConfig()).check()
    assert caplog.messages == []
    make(DummyPolicyConfig(), Twice()).check()
    assert [text.split(" say ")[0] for text in caplog.messages] == ["--algo.action-horizon and --policy.action-horizon"]


class Team:
    """Notes what the other learners would be told, and how far the algorithm had come then."""

    def __init__(self):
        self.told = []

    def build(self, selection, seed, algorithm):
        self.told.append((selection.policy_config.obs_dim, seed, algorithm.global_step))


def test_the_other_learners_build_what_was_built_here_with_its_state(make):
    team = Team()
    source = make(GaussianPolicyConfig(hidden_sizes=(4,)), PPOConfig(), team=team)
    source.build_early()
    assert team.told == []
    trained = source.build(BOX, SEEN).algorithm
    assert team.told == [(3, 3, 0)]
    trained.global_step = 77
    again = make(GaussianPolicyConfig(hidden_sizes=(4,)), PPOConfig(), team=team)
    again.build_from(trained.create_checkpoint(), BOX, SEEN)
    assert team.told[1:] == [(3, 3, 77)]


class Mine(DummyAlgorithm):
    """An algorithm of a user's under a built-in's uid."""


def test_a_builtin_that_user_code_replaces_is_told_when_the_run_begins(make, monkeypatch, caplog):
    caplog.set_level("INFO")
    source = make(DummyPolicyConfig(), DummyAlgoConfig())
    source.check()
    assert caplog.messages == []
    monkeypatch.setattr(ALGORITHMS, "_entries", copy.deepcopy(ALGORITHMS._entries))
    ALGORITHMS.register_class("dummy")(Mine)
    source.check()
    assert caplog.messages == [f"Algorithm dummy: {__name__}.Mine replaces the built-in."]
