"""The table of built-in policies names modules that register what it says."""

import dataclasses
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from plugrl_server.policy import lerobot
from plugrl_server.policy.builtins import BUILTIN_POLICIES
from plugrl_server.policy.registration import POLICIES


def test_every_row_registers_its_class_and_configuration():
    for builtin in BUILTIN_POLICIES:
        importlib.import_module(builtin.config_module)
        if (command := builtin.install_command) is not None:
            with pytest.raises(
                ImportError, match=f"{builtin.uid} needs lerobot.*, which is not installed: "
            ) as refused:
                POLICIES.get_class(builtin.uid)
            assert str(refused.value).endswith(command)
            assert f"\n{command}\n" in (Path(lerobot.__file__).parent / "README.md").read_text()
            continue
        cls = POLICIES.get_class(builtin.uid)
        assert cls.__module__ == builtin.class_module
        assert {config.__module__ for config in POLICIES.variants()[builtin.uid].values()} == {builtin.config_module}


def test_a_hyphen_in_a_uid_is_an_underscore_in_the_module():
    for builtin in BUILTIN_POLICIES:
        assert builtin.class_module.endswith(builtin.uid.replace("-", "_"))


def test_hidden_sizes_are_of_all_networks_or_each_network_has_its_own():
    for builtin in BUILTIN_POLICIES:
        for variant, config in POLICIES.variants()[builtin.uid].items():
            sizes = {field.name for field in dataclasses.fields(config) if field.name.endswith("hidden_sizes")}
            of_each = sizes <= {"actor_hidden_sizes", "critic_hidden_sizes"}
            assert of_each or sizes == {"hidden_sizes"}, (builtin.uid, variant)


def test_lesson_23_listing_imports_no_torch():
    program = (
        "import sys; from plugrl_server.policy.registration import list_policies; "
        "assert 'gaussian-policy' in list_policies(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
