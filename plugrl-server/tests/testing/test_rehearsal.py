"""A rehearsal goes through the server's turns and notes them."""

import numpy as np
import pytest
from plugrl_protocol.spaces import BoxSpace
from plugrl_server.algorithm.dummy.dummy import DummyAlgorithm
from plugrl_server.algorithm.dummy.dummy_config import DummyAlgoConfig
from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig
from plugrl_server.testing.rehearsal import LEARNS_IN_A_ROW, Rehearsal
from plugrl_server.testing.tiny_env import TinyEnv
from plugrl_server.training.accounting import Discard

BOX = BoxSpace((2,), np.dtype("<f4"), np.full(2, -1, "<f4"), np.full(2, 1, "<f4"))


@pytest.fixture
def rehearse(tmp_path):
    def begin(num_envs=3, **config):
        policy = DummyPolicy(DummyPolicyConfig(action_space=BOX))
        algorithm = DummyAlgorithm(DummyAlgoConfig(**config), policy)
        return Rehearsal(algorithm, TinyEnv(BOX, {"a": 1}, num_envs=num_envs), tmp_path)

    return begin


def test_learn_steps_and_saves_are_noted_by_their_steps(rehearse):
    run = rehearse(learn_every=7, save_interval=10)
    for _ in range(9):
        run.exchange()
    assert run.exchanges == 9
    assert run.learned_at == [7, 14, 21]
    assert run.saved_at == [10, 20]
    assert (run.longest_row, run.saved_in_vain) == (1, False)
    assert len(run.metrics) == 3


def test_nodes_go_round(rehearse):
    run = rehearse(num_envs=1)
    run.exchange()
    assert run.rows(run.ask()).nodes == [(1, "dummy")]


def test_frames_of_an_older_policy_are_discarded_as_on_the_server(rehearse):
    run = rehearse(learn_every=100)
    asked = run.ask()
    run.learn()
    assert run.answer(asked) == {Discard.STALE: 3}


def test_learning_without_end_ends(rehearse):
    run = rehearse()
    run.algorithm.should_learn = lambda: True
    run.exchange()
    assert run.longest_row == len(run.learned_at) == LEARNS_IN_A_ROW


def test_saving_in_vain_is_noticed(rehearse):
    run = rehearse()
    run.algorithm.should_save = lambda: True
    run.exchange()
    assert run.saved_in_vain


def test_until_stops_when_it_is_so_or_gives_up(rehearse):
    run = rehearse()
    assert run.until(lambda: run.exchanges == 4, 10)
    assert run.exchanges == 4
    assert not run.until(lambda: False, 2)
    assert run.exchanges == 6


def test_a_checkpoint_comes_back_from_the_disk(rehearse, tmp_path):
    run = rehearse()
    run.exchange()
    assert run.through_disk().step == 3
    assert (tmp_path / "3").is_dir()
