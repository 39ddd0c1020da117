"""Which runs learners can share, and what rank 0 tells them."""

import dataclasses

import pytest
import torch
from plugrl_server.algorithm.collectives import Collectives, LearnersLost
from plugrl_server.assembly import Selection
from plugrl_server.common.config_error import ConfigError
from plugrl_server.learners.team import Build, Done, Team, check_can_share


@dataclasses.dataclass
class Sizes:
    batch_size: int = 4
    concurrent: bool = False


def selection(algo="ppo", **sizes):
    return Selection("gaussian-policy", "default", None, algo, "default", Sizes(**sizes))


class Recorded(Collectives):
    def __init__(self, lost=False):
        self.sent, self.lost = [], lost

    def broadcast(self, tree=None):
        if self.lost:
            raise LearnersLost("gone")
        self.sent.append(tree)
        return tree


class Built:
    in_step = False

    def join(self, collectives):
        collectives.broadcast("state")


def test_an_algorithm_that_learns_in_one_process_is_refused_with_those_that_do_not():
    with pytest.raises(ConfigError) as error:
        check_can_share(selection("dummy"), 2)
    text = str(error.value)
    assert text.startswith("--learners 2: dummy learns in one process; these share their learn steps: ")
    able = text.partition("steps: ")[2].partition(".")[0].split(", ")
    assert "ppo" in able
    assert "dummy" not in able
    assert "hooks of DDPAlgorithm" in text


def test_a_mini_batch_that_cannot_be_split_is_refused():
    check_can_share(selection(batch_size=4), 4)
    with pytest.raises(ConfigError, match=r"--learners 5: a mini-batch of --algo.batch-size 4 cannot be split into 5"):
        check_can_share(selection(batch_size=4), 5)


def test_a_learner_in_a_process_of_its_own_is_not_shared():
    with pytest.raises(ConfigError, match=r"--learners 2: --algo.concurrent"):
        check_can_share(selection(concurrent=True), 2)


def test_a_class_that_cannot_be_had_is_left_to_the_check_of_the_selection():
    check_can_share(selection("nobody-registered-this"), 2)


def test_a_build_is_told_before_the_state_that_belongs_to_it():
    collectives = Recorded()
    Team(collectives).build(selection(), 7, Built())
    assert collectives.sent == [Build(selection(), 7, torch.get_num_threads()), "state"]


def test_learners_are_told_that_the_run_is_done():
    collectives = Recorded()
    team = Team(collectives)
    team.build(selection(), 7, Built())
    assert team.dismiss()
    assert collectives.sent[-1] == Done()


def test_learners_in_the_middle_of_a_learn_step_are_told_nothing():
    collectives, algorithm = Recorded(), Built()
    team = Team(collectives)
    team.build(selection(), 7, algorithm)
    algorithm.in_step = True
    assert not team.dismiss()
    assert Done() not in collectives.sent


def test_learners_that_are_gone_need_not_be_told():
    assert not Team(Recorded(lost=True)).dismiss()
