"""Which checkpoint a path means, and whether its weights fit."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from plugrl_server.algorithm.evaluation.trained_policy import find_trained_policy, require_weights
from plugrl_server.common.checkpoint_manager import Checkpoint, CheckpointError, CheckpointManager
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.base_policy import BasePolicy
from plugrl_server.policy.gaussian.gaussian_policy import GaussianPolicy
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig


@pytest.mark.parametrize(
    ("path", "step"), [("", 10), ("checkpoints", 10), ("checkpoints/10", 10), ("checkpoints/5", 5)]
)
def test_a_run_folder_means_its_latest_step_and_a_step_folder_itself(trained, path, step):
    found = find_trained_policy(trained.folder / path)
    assert (found.run, found.step) == (trained.folder, step)
    assert found.record().policy.config["hidden_sizes"] == [8]


def test_a_path_may_be_relative(trained, monkeypatch):
    monkeypatch.chdir(trained.folder.parent)
    assert find_trained_policy(trained.folder.relative_to(trained.folder.parent)).step == 10


def test_weights_and_normaliser_are_the_checkpoint_s(trained):
    obs = {"images": {}, "states": {"s": np.array([[1.0, 5.0, 9.0]])}, "text": np.array([""])}
    for step, policy in trained.policies.items():
        fresh = GaussianPolicy(trained.config)
        find_trained_policy(trained.folder / "checkpoints" / str(step)).load_into(fresh)
        fresh.deterministic = policy.deterministic = True
        actions = [built.get_action_and_runtime_state(obs)[0] for built in (fresh, policy)]
        np.testing.assert_array_equal(*actions)


def test_a_policy_of_another_size_is_refused_with_both_sizes(trained):
    wider = GaussianPolicy(dataclasses.replace(trained.config, hidden_sizes=(16,), initial_log_std=-1.0))
    with pytest.raises(ConfigError) as refused:
        find_trained_policy(trained.folder).load_into(wider)
    for part in ("gaussian-policy default", "does not fit this GaussianPolicy", "--policy.hidden-sizes 16 (was 8)"):
        assert part in str(refused.value)


def test_weights_are_those_of_a_run_or_the_policy_s_own():
    class Own:
        brings_weights = True

    require_weights("eval", None, "own-policy", Own(), "so on")
    require_weights("eval", Path("run"), "gaussian-policy", GaussianPolicyConfig(), "so on")
    text = "eval needs --algo.policy-checkpoint-path RUN_FOLDER: plain-policy brings no weights of its own, and so on."
    for config in (GaussianPolicyConfig(), object()):
        with pytest.raises(ConfigError, match=re.escape(text)):
            require_weights("eval", None, "plain-policy", config, "so on")


def test_what_is_no_run_and_no_step_is_refused(trained, tmp_path):
    cases = {
        tmp_path / "nowhere": "there is no such folder",
        tmp_path: "is neither a run folder",
        trained.folder / "config.json": "there is no such folder",
    }
    for path, reason in cases.items():
        with pytest.raises(ConfigError, match=f"--algo.policy-checkpoint-path.*{reason}"):
            find_trained_policy(path)


def test_a_run_without_a_checkpoint_or_without_its_record_is_refused(trained):
    (trained.folder / "checkpoints").rename(trained.folder / "kept")
    with pytest.raises(ConfigError, match="has saved no checkpoint"):
        find_trained_policy(trained.folder)
    (trained.folder / "kept").rename(trained.folder / "checkpoints")
    (trained.folder / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json: not JSON"):
        find_trained_policy(trained.folder).record()
    (trained.folder / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        find_trained_policy(trained.folder / "checkpoints/5")


def test_weights_that_are_not_there_or_cannot_be_taken_are_refused(trained):
    class Still(BasePolicy):
        def get_action_and_runtime_state(self, obs):
            return np.zeros((1, 1, 1)), None

    with pytest.raises(ConfigError, match=r"Still takes no weights; .* is a gaussian-policy"):
        find_trained_policy(trained.folder).load_into(Still(None))
    CheckpointManager(trained.folder / "checkpoints").save(Checkpoint(step=11))
    with pytest.raises(CheckpointError, match=r"checkpoint 11 of .* holds no weights \(gaussian-policy\)"):
        find_trained_policy(trained.folder).load_into(GaussianPolicy(trained.config))
