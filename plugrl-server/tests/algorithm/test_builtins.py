"""The table of built-in algorithms names modules that register what it says."""

import importlib
import subprocess
import sys

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


def test_lesson_23_importing_the_package_and_listing_import_no_torch():
    program = (
        "import sys, plugrl_server.algorithm; from plugrl_server.algorithm.registration import list_algos; "
        "assert {'ppo', 'dummy'} <= set(list_algos()); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
