"""The table of built-in algorithms names modules that register what it says."""

import dataclasses
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from plugrl_server.algorithm.builtins import BUILTIN_ALGORITHMS
from plugrl_server.algorithm.registration import ALGORITHMS


def test_every_row_registers_its_class_and_configuration():
    for builtin in BUILTIN_ALGORITHMS:
        importlib.import_module(builtin.config_module)
        cls = ALGORITHMS.get_class(builtin.uid)
        assert cls.__module__ == builtin.class_module
        assert {config.__module__ for config in ALGORITHMS.variants()[builtin.uid].values()} == {builtin.config_module}


def test_a_hyphen_in_a_uid_is_an_underscore_in_the_module():
    for builtin in BUILTIN_ALGORITHMS:
        name = {"eval": "evaluation"}.get(builtin.uid, builtin.uid)  # a module called eval would hide Python's own
        assert builtin.class_module.endswith(name.replace("-", "_"))


@pytest.mark.parametrize("builtin", BUILTIN_ALGORITHMS, ids=lambda builtin: builtin.uid)
def test_every_algorithm_has_a_readme_that_shows_its_command(builtin):
    folder = Path(importlib.import_module(builtin.config_module).__file__).parent
    assert re.search(rf"plugrl-run-server \S+ \S+ {builtin.uid} \S+ ", (folder / "README.md").read_text())


def test_lesson_23_importing_the_package_and_listing_import_no_torch():
    program = (
        "import sys, plugrl_server.algorithm; from plugrl_server.algorithm.registration import list_algos; "
        "assert {'ppo', 'dummy'} <= set(list_algos()); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


OTHER_NAMES = {
    *("lr", "actor_lr", "critic_lr", "actor_learning_rate", "q_learning_rate", "policy_learning_rate", "value_lr"),
    *("discount", "lam", "gae_lam", "clip_range", "clip_eps", "clip_epsilon", "epochs", "num_epochs", "n_epochs"),
    *(
        "minibatch_size",
        "mini_batch_size",
        "rollout_size",
        "rollout_steps",
        "num_steps",
        "replay_size",
        "replay_capacity",
    ),
    *(
        "grad_clip",
        "grad_norm",
        "kl_target",
        "entropy_coef",
        "value_coef",
        "value_loss_coef",
        "save_every",
        "save_freq",
    ),
    *("total_steps", "total_timesteps", "max_steps", "n_steps"),
}


def test_one_name_per_idea_in_every_algorithm():
    """learning_rate, gamma, clip_coef, update_epochs, batch_size, buffer_size, ...: never another name for one."""
    for builtin in BUILTIN_ALGORITHMS:
        for variant, config in ALGORITHMS.variants()[builtin.uid].items():
            names = {field.name for field in dataclasses.fields(config)}
            assert not names & OTHER_NAMES, (builtin.uid, variant)
            assert "global_steps" in names
