"""FPO's checkpoints, and that it learns a bandit and holds what it learned."""

import numpy as np
import pytest
from plugrl_server.algorithm.fpo.fpo_config import FPOConfig, FPOPlusPlusConfig
from plugrl_server.common.checkpoint_manager import CheckpointError, CheckpointManager

PRESETS = [FPOConfig, FPOPlusPlusConfig]


def everything(algorithm):
    """All state as bytes."""
    checkpoint = algorithm.create_checkpoint()
    model = {name: value.numpy().tobytes() for name, value in checkpoint.model.items()}
    optimizer = [
        (group["step"], group["first_moment"].numpy().tobytes(), group["second_moment"].numpy().tobytes())
        for group in checkpoint.optimizer["groups"]
    ]
    scale = {name: value.item() for name, value in checkpoint.meta["return_normalizer"].items()}
    return model, optimizer, scale, checkpoint.step, checkpoint.meta["iteration"], checkpoint.meta["extra"]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("rounds", [0, 3])
def test_rule_9_iterations_after_a_resume_are_byte_identical(
    make_fpo, bandit, make_bandit, iterate, tmp_path, rounds, preset
):
    """Through the disk, between iterations and in the middle of one; the resumed process starts from another seed."""
    changes = {"preset": preset, "ema_start": 40}  # in the middle of the third iteration
    algorithm = make_fpo(**changes)
    iterate(algorithm, bandit, 2)
    for _ in range(rounds):
        algorithm.feedback_rows(bandit.rows(algorithm))
    manager = CheckpointManager(tmp_path)
    manager.save(algorithm.create_checkpoint())
    resumed_bandit = make_bandit()
    resumed_bandit.round = bandit.round
    first = iterate(algorithm, bandit, 3)

    resumed = make_fpo(seed=77, **changes)
    resumed.load_checkpoint(manager.load())
    assert resumed.global_step == 2 * 128 + rounds * 16
    second = iterate(resumed, resumed_bandit, 3)
    assert everything(resumed) == everything(algorithm)
    for mine, theirs in zip(first, second, strict=True):
        assert {k: v for k, v in mine.items() if "losses" in k} == {k: v for k, v in theirs.items() if "losses" in k}
    obs = bandit.observation()
    np.testing.assert_array_equal(algorithm.infer(obs)[0], resumed.infer(obs)[0])


def test_lesson_22_a_checkpoint_of_another_configuration_is_refused(make_fpo, bandit, iterate):
    algorithm = make_fpo()
    iterate(algorithm, bandit)
    with pytest.raises(CheckpointError, match="does not fit this configuration"):
        make_fpo(policy={"actor_hidden_sizes": (8,)}).load_checkpoint(algorithm.create_checkpoint())


def test_the_train_state_is_the_chunk_before_it_was_mapped(make_fpo, bandit):
    algorithm = make_fpo(policy={"action_horizon": 3})
    actions, runtime_state = algorithm.infer(bandit.observation())
    assert runtime_state["chain"].shape == (16, 1, 3, 1)
    np.testing.assert_array_equal(algorithm.derive_train_state(runtime_state), actions)  # no bounds: as they are
    assert algorithm.example_train_state(5).shape == (5, 3, 1)


def test_an_evaluation_acts_without_noise(make_fpo, bandit):
    algorithm = make_fpo()
    algorithm.policy.deterministic = True
    first, second = (algorithm.infer(bandit.observation())[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
