"""PPO's schedule and state: when it learns, saves and stops, and what a resumed run goes on with (rule 9)."""

import random

import numpy as np
import pytest
from plugrl_server.algorithm.ppo.ppo import PPO
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.common.checkpoint_manager import CheckpointError, CheckpointManager
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.gaussian.gaussian_policy import GaussianPolicy
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig


def test_it_learns_from_the_last_full_buffer_before_it_stops(make_ppo, bandit, collect):
    algorithm = make_ppo(global_steps=128)
    collect(algorithm, bandit)
    assert algorithm.global_step == 128
    assert not algorithm.should_stop()
    algorithm.learn()
    assert algorithm.should_stop()
    assert not algorithm.should_learn()


def test_it_saves_every_save_interval_iterations(make_ppo, bandit, iterate):
    algorithm = make_ppo(save_interval=2)
    saves = []
    for _ in range(5):
        iterate(algorithm, bandit)
        saves.append(algorithm.should_save())
        if algorithm.should_save():
            algorithm.create_checkpoint()
    assert saves == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("rounds", "changes"),
    [
        (0, {}),
        (3, {}),
        (3, {"desired_kl": 0.001, "anneal_learning_rate": False, "critic_learning_rate": 1e-3}),
        (3, {"critic_warmup_iterations": 3}),
    ],
)
def test_rule_9_iterations_after_a_resume_are_byte_identical(make_ppo, go_on_and_resume, rounds, changes):
    """Between iterations and in the middle of one."""
    _, resumed = go_on_and_resume(make_ppo, rounds, **changes)
    assert (resumed.rate_scale != 1) == ("desired_kl" in changes)


class Outside(GaussianPolicy):
    """Explores by the global generators, as policies from elsewhere may: the server seeds them."""

    def get_action_and_runtime_state(self, obs):
        sample = self.actor_outputs(obs)
        sample += np.random.standard_normal(sample.shape) + random.gauss(0, 0.1)  # noqa: NPY002
        return sample[:, None], {"sample": sample}


def test_rule_9_what_a_policy_draws_from_python_s_and_numpy_s_generators_goes_on_too(
    make_bandit, iterate, everything, tmp_path
):
    def make(seed):
        seed_everything(seed)
        policy = Outside(GaussianPolicyConfig(obs_dim=1, action_dim=1, device="cpu"))
        return PPO(PPOConfig(buffer_size=48, batch_size=32, update_epochs=1), policy)

    algorithm, bandit, resumed_bandit = make(0), make_bandit(), make_bandit()
    iterate(algorithm, bandit)
    algorithm.feedback_rows(bandit.rows(algorithm))
    manager = CheckpointManager(tmp_path)
    manager.save(algorithm.create_checkpoint())
    resumed_bandit.round = bandit.round
    iterate(algorithm, bandit, 2)

    resumed = make(77)
    resumed.load_checkpoint(manager.load())
    iterate(resumed, resumed_bandit, 2)
    assert everything(resumed) == everything(algorithm)


def test_lesson_21_schedule_and_save_counters_are_restored(make_ppo, bandit, iterate):
    algorithm = make_ppo(save_interval=3, global_steps=128 * 8)
    iterate(algorithm, bandit, 4)
    checkpoint = algorithm.create_checkpoint().copy()
    expected = iterate(algorithm, bandit)["losses/learning_rate"]
    resumed = make_ppo(save_interval=3, global_steps=128 * 8)
    resumed.load_checkpoint(checkpoint)
    assert not resumed.should_save()
    assert iterate(resumed, bandit)["losses/learning_rate"] == expected
    iterate(resumed, bandit, 2)
    assert resumed.should_save()


def test_lesson_9_a_checkpoint_taken_before_a_learn_step_repeats_it(make_ppo, bandit, collect, everything):
    algorithm = make_ppo()
    collect(algorithm, bandit)
    checkpoint = algorithm.create_checkpoint().copy()
    algorithm.learn()
    resumed = make_ppo(seed=5)
    resumed.load_checkpoint(checkpoint)
    assert resumed.should_learn()
    resumed.learn()
    assert everything(resumed) == everything(algorithm)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"policy": {"hidden_sizes": (8,)}}, "does not fit this configuration"),
        ({"buffer_size": 32}, "48 stored frames do not fit into a buffer of 32"),
    ],
)
def test_lesson_22_a_checkpoint_of_another_configuration_is_refused(make_ppo, bandit, changes, problem):
    algorithm = make_ppo()
    for _ in range(3):
        algorithm.feedback_rows(bandit.rows(algorithm))
    with pytest.raises(CheckpointError, match=problem):
        make_ppo(**changes).load_checkpoint(algorithm.create_checkpoint())
