"""SAC whose learner runs in a process of its own, against SAC that learns where it acts."""

import copy
import os

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.concurrent.remote_learner import RemoteLearner
from plugrl_server.common.checkpoint_manager import CheckpointError, CheckpointManager
from plugrl_server.learning import trees

ROUNDS = 30
OPTIONS = {"learning_starts": 32, "report_interval": 20, "policy": {"normalize_observations": True}}


@pytest.fixture
def make_pair(make_sac):
    """Make SAC that learns here and SAC that learns elsewhere, from one seed; ends the other process afterwards."""
    made = []

    def make(**changes):
        for concurrent in (False, True):
            algorithm = make_sac(**{**OPTIONS, **changes}, concurrent=concurrent)
            algorithm.init_optimizers()
            made.append(algorithm)
        return made[-2:]

    yield make
    for algorithm in made:
        algorithm.close()


@pytest.fixture
def recorded(make_sac, make_bandit):
    """Messages of a run that happened before, so that both get the same ones."""
    algorithm, bandit = make_sac(seed=9), make_bandit()
    return [bandit.rows(algorithm) for _ in range(2 * ROUNDS)]


def replay(algorithm, messages):
    """Hand over recorded messages, with the learn steps they make due; returns the metrics that were reported."""
    reports = []
    for rows in copy.deepcopy(messages):
        algorithm.feedback_rows(rows)
        while algorithm.should_learn():
            reports.append(algorithm.learn_impl()[1])
    return [metrics for metrics in reports if metrics is not None]


def assert_same(checkpoint, other):
    """Everything but the metrics that are still to be reported, which are summed up at different times."""

    def same(leaf, theirs):
        np.testing.assert_array_equal(np.asarray(leaf), np.asarray(theirs))

    meta, theirs = dict(checkpoint.meta), dict(other.meta)
    for each in (meta, theirs):
        each["learner"] = {name: value for name, value in each["learner"].items() if name != "told"}
        del each["reported_updates"]
    trees.map_leaves(same, [checkpoint.model, checkpoint.optimizer, meta], [other.model, other.optimizer, theirs])


def test_both_take_the_same_updates_and_their_checkpoints_fit_the_other(make_pair, recorded, tmp_path):
    here, elsewhere = make_pair()
    assert isinstance(elsewhere.learner, RemoteLearner)
    for algorithm in (here, elsewhere):
        replay(algorithm, recorded[:ROUNDS])
    first = here.create_checkpoint().copy()
    assert_same(elsewhere.create_checkpoint(), first)
    assert here.learner.updates == ROUNDS * 8 - 32

    disk = CheckpointManager(tmp_path)
    disk.save(elsewhere.create_checkpoint())
    replay(here, recorded[ROUNDS:])
    here.load_checkpoint(disk.load())
    elsewhere.load_checkpoint(first)
    for algorithm in (here, elsewhere):
        assert algorithm.global_step == ROUNDS * 8
        replay(algorithm, recorded[ROUNDS:])
    assert_same(elsewhere.create_checkpoint(), here.create_checkpoint())
    assert torch.equal(elsewhere.policy.log_alpha, here.policy.log_alpha)

    due = here.create_checkpoint().copy()  # as it is when a run is stopped before it has learned from a message
    due.meta["due"] += 7
    for algorithm in (here, elsewhere):
        algorithm.load_checkpoint(due)
        assert algorithm.config.global_steps > algorithm.global_step
        replay(algorithm, recorded[:1])
    assert_same(elsewhere.create_checkpoint(), here.create_checkpoint())

    first.meta["learner"]["replay"]["added"] = 10_000
    with pytest.raises(CheckpointError, match="240 frames of 10000 were stored; this buffer holds 5000"):
        elsewhere.load_checkpoint(first)


def test_it_learns_reports_and_ends_with_every_update_taken(make_pair, make_bandit, run):
    _, algorithm = make_pair(global_steps=960)
    pid = algorithm.learner.process.pid
    bandit = make_bandit()
    before = bandit.cost(algorithm)
    reports = run(algorithm, bandit, 119)
    assert not algorithm.should_stop()
    reports += run(algorithm, bandit, 1)
    assert algorithm.should_stop()
    assert reports[-1]["losses/updates"] == algorithm.learner.updates == 960 - 32
    assert reports[-1]["time/updates_behind"] == 0
    assert {"losses/critic_loss", "losses/actor_loss", "losses/alpha"} <= reports[-1].keys()
    assert bandit.cost(algorithm) < before / 4

    checkpoint = algorithm.create_checkpoint().copy()
    checkpoint.meta["due"] += 3  # stopped before it had learned from the last message
    algorithm.load_checkpoint(checkpoint)
    assert not algorithm.should_stop()
    while algorithm.should_learn():
        algorithm.learn_impl()
    assert algorithm.learner.updates == 960 - 32 + 3
    algorithm.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
