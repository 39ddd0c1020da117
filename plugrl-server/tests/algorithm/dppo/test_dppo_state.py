"""DPPO's schedule and state: when it learns, saves and stops, and what a resumed run goes on with (rule 9)."""

import json
from typing import ClassVar

import numpy as np
import pytest
from plugrl_server.algorithm.dppo.dppo import DPPO
from plugrl_server.algorithm.dppo.dppo_config import DPPOConfig
from plugrl_server.common.checkpoint_manager import CheckpointError, CheckpointManager
from plugrl_server.policy.dppo.dppo_policy import DPPOPolicy
from plugrl_server.policy.dppo.dppo_policy_config import DPPOPolicySmallConfig
from plugrl_server.policy.fpo.fpo_policy import FPOPolicy
from plugrl_server.policy.fpo.fpo_policy_config import FPOPolicyConfig
from plugrl_server.record.config_json import config_to_json
from plugrl_server.record.run_record import Part, RunRecord
from plugrl_server.testing import AlgorithmContract, PolicyContract

SMALL = {"actor_hidden_sizes": (8,), "critic_hidden_sizes": (8,), "device": "cpu"}


@pytest.mark.parametrize(("rounds", "finetuned_steps"), [(0, None), (3, None), (3, 2)])
def test_rule_9_iterations_after_a_resume_are_byte_identical(make_dppo, go_on_and_resume, rounds, finetuned_steps):
    """Between iterations and in the middle of one."""
    go_on_and_resume(make_dppo, rounds, finetuned_steps=finetuned_steps)


@pytest.mark.parametrize("finetuned_steps", [None, 1, 3])
def test_a_run_that_fine_tuned_other_steps_is_not_resumed(make_dppo, bandit, finetuned_steps):
    algorithm = make_dppo(finetuned_steps=2)
    algorithm.feedback_rows(bandit.rows(algorithm))
    with pytest.raises(CheckpointError, match="denoising steps learn here, 2 there"):
        make_dppo(finetuned_steps=finetuned_steps).load_checkpoint(algorithm.create_checkpoint())


def test_a_checkpoint_acts_by_its_frozen_steps_too(make_dppo, bandit, iterate):
    """What an evaluation does: a fresh policy, and the weights."""
    algorithm = make_dppo(finetuned_steps=2, learning_rate=1e-2)
    iterate(algorithm, bandit, 2)
    model = algorithm.create_checkpoint().copy().model
    policy = DPPOPolicy(algorithm.policy.config)
    policy.load_state_dict(model)
    obs, rng = bandit.observation(), algorithm.policy.rng_state()
    actions = algorithm.infer(obs)[0]
    policy.load_rng_state(rng)
    np.testing.assert_array_equal(policy.get_action_and_runtime_state(obs)[0], actions)
    policy.freeze_early_steps(0)
    policy.load_rng_state(rng)
    assert not np.array_equal(policy.get_action_and_runtime_state(obs)[0], actions)


def test_fine_tuning_what_was_fine_tuned_keeps_the_weights_of_its_early_steps(make_dppo, bandit, iterate):
    algorithm = make_dppo(finetuned_steps=2, learning_rate=1e-2)
    iterate(algorithm, bandit)
    before = algorithm.policy.frozen
    assert DPPO(DPPOConfig(finetuned_steps=2), algorithm.policy).policy.frozen is before
    other = DPPO(DPPOConfig(finetuned_steps=3), algorithm.policy).policy
    assert (other.early_steps, other.frozen is before) == (2, False)


def saved_run(algorithm, folder):
    """The run folder of an algorithm, as the server leaves it."""
    CheckpointManager(folder / "checkpoints").save(algorithm.create_checkpoint())
    policy, algo = (
        Part(uid, variant, type(part).__module__, type(part).__qualname__, config_to_json(part.config))
        for uid, variant, part in (("dppo-policy", "small", algorithm.policy), ("dppo", "default", algorithm))
    )
    record = RunRecord(policy, algo, {}, 0, {}, [], None, None)
    (folder / "config.json").write_text(json.dumps(record.to_json()))
    return folder


def test_fine_tuning_begins_with_a_trained_policy_and_freezes_its_weights(make_dppo, bandit, iterate, tmp_path):
    trained = make_dppo(learning_rate=1e-2)
    iterate(trained, bandit, 2)
    folder = saved_run(trained, tmp_path)
    tuned = make_dppo(seed=5, finetuned_steps=2, policy_checkpoint_path=folder)
    assert tuned.config.policy_record().policy.uid == "dppo-policy"
    obs, rng = bandit.observation(), trained.policy.rng_state()
    expected = trained.infer(obs)[0]
    tuned.policy.load_rng_state(rng)
    np.testing.assert_array_equal(tuned.infer(obs)[0], expected)
    assert (tuned.policy.early_steps, tuned.iteration, tuned.global_step) == (3, 0, 0)


class TestDPPOWithDiffusion(AlgorithmContract):
    """The contract, over images as well."""

    images: ClassVar = {"eye": (40, 40, 3)}

    def make_policy(self):
        return DPPOPolicy(self.sized(DPPOPolicySmallConfig(**SMALL, action_horizon=2, num_steps=2)))

    def make_algorithm(self):
        config = DPPOConfig(buffer_size=16, batch_size=16, update_epochs=1, save_interval=2)
        return DPPO(config, self.make_policy())


class TestDPPOWithFlow(AlgorithmContract):
    """The contract with early steps frozen."""

    def make_policy(self):
        return FPOPolicy(self.sized(FPOPolicyConfig(**SMALL, exploration_noise=1.0, num_steps=3)))

    def make_algorithm(self):
        config = DPPOConfig(buffer_size=32, batch_size=32, update_epochs=1, finetuned_steps=2, save_interval=2)
        return DPPO(config, self.make_policy())


class TestDPPOPolicy(PolicyContract):
    """The policy's own contract."""

    images: ClassVar = {"eye": (40, 40, 3)}

    def make_policy(self):
        return DPPOPolicy(self.sized(DPPOPolicySmallConfig(**SMALL, action_horizon=2, num_steps=2)))
