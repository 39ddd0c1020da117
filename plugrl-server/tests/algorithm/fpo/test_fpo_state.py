"""FPO's checkpoints, and that it learns a bandit and holds what it learned."""

from pathlib import Path

import numpy as np
import pytest
from plugrl_server.algorithm.fpo import fpo
from plugrl_server.algorithm.fpo.fpo_config import (
    FPOCheetahConfig,
    FPOConfig,
    FPOPlusPlusConfig,
    FPOPlusPlusFinetuneConfig,
)
from plugrl_server.common.checkpoint_manager import CheckpointError

PRESETS = [FPOConfig, FPOPlusPlusConfig, FPOPlusPlusFinetuneConfig, FPOCheetahConfig]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("rounds", [0, 3])
def test_rule_9_iterations_after_a_resume_are_byte_identical(make_fpo, go_on_and_resume, rounds, preset):
    """Between iterations and in the middle of one; the weights' average begins in the middle of the third."""
    go_on_and_resume(make_fpo, rounds, preset=preset, ema_start=40)


def test_lesson_22_a_checkpoint_of_another_configuration_is_refused(make_fpo, bandit, iterate):
    algorithm = make_fpo()
    iterate(algorithm, bandit)
    with pytest.raises(CheckpointError, match="does not fit this configuration"):
        make_fpo(policy={"actor_hidden_sizes": (8,)}).load_checkpoint(algorithm.create_checkpoint())


def test_the_train_state_is_the_chunk_before_it_was_mapped_and_how_far_it_is_run(make_fpo, bandit):
    algorithm = make_fpo(policy={"action_horizon": 3}, executed_steps=2)
    actions, runtime_state = algorithm.infer(bandit.observation())
    assert runtime_state["chain"].shape == (16, 1, 3, 1)
    state = algorithm.derive_train_state(runtime_state)
    np.testing.assert_array_equal(state["chunk"], actions)  # no bounds: as they are
    assert state["executed"].tolist() == [2] * 16
    example = algorithm.example_train_state(5)
    assert (example["chunk"].shape, example["executed"].shape) == ((5, 3, 1), (5,))


def test_where_an_episode_ended_inside_a_chunk_only_what_was_run_is_learned_from(make_fpo, bandit):
    algorithm = make_fpo(policy={"action_horizon": 3})
    rows = bandit.rows(algorithm)
    rows.info[1]["episode"]["l"] = 5
    rows.next_terminated[2] = False
    algorithm.feedback_rows(rows)
    assert algorithm.rollout.stored().train_state["executed"].tolist() == [1, 2, 3] + [1] * 13


def test_it_begins_with_the_policy_of_another_run(make_fpo, monkeypatch, bandit, iterate):
    trained = make_fpo(seed=5)
    iterate(trained, bandit)

    class Found:
        def load_into(self, policy):
            policy.load_state_dict(trained.create_checkpoint().copy().model)

    monkeypatch.setattr(fpo, "find_trained_policy", lambda path: Found() if path == Path("there") else None)
    begun = make_fpo(policy_checkpoint_path=Path("there"))
    trained.policy.deterministic = begun.policy.deterministic = True
    obs = bandit.observation()
    np.testing.assert_array_equal(begun.infer(obs)[0], trained.infer(obs)[0])
    assert begun.global_step == 0


def test_an_evaluation_acts_without_noise(make_fpo, bandit):
    algorithm = make_fpo()
    algorithm.policy.deterministic = True
    first, second = (algorithm.infer(bandit.observation())[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
@pytest.mark.parametrize("preset", [FPOPlusPlusConfig, FPOCheetahConfig])
def test_it_learns_a_bandit_and_holds_it(make_fpo, make_bandit, iterate, preset):
    """The known failure of FPO: it finds the best actions and goes away from them again; `plus-plus` never anneals."""
    sizes = {"buffer_size": 256, "batch_size": 64, "update_epochs": 5, "global_steps": 120 * 256}
    algorithm = make_fpo(preset=preset, **sizes)
    metrics = iterate(algorithm, make_bandit(64), 120)
    cost = -np.array([one["rollout/reward"] for one in metrics]).reshape(-1, 20).mean(1)
    assert cost[0] > 0.3
    assert cost.min() < 0.005
    assert cost[-1] < 2 * cost.min()


def test_default_learns_a_bandit(make_fpo, make_bandit, iterate):
    algorithm = make_fpo(buffer_size=256, batch_size=64, update_epochs=5)
    metrics = iterate(algorithm, make_bandit(64), 20)
    assert metrics[0]["rollout/reward"] < -1
    assert metrics[-1]["rollout/reward"] > -0.1
