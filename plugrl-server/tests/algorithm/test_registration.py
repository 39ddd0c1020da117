"""Registering, listing and making algorithms, and the two ways to put one into the package."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import plugrl_server.algorithm
import pytest
from plugrl_server.algorithm.base_algorithm import BaseAlgorithm
from plugrl_server.algorithm.dummy.dummy_config import DummyAlgoConfig
from plugrl_server.algorithm.registration import list_algos, make_algo, register_algo
from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig


def test_a_builtin_is_made():
    policy = DummyPolicy(DummyPolicyConfig())
    algorithm = make_algo("dummy", DummyAlgoConfig(), policy)
    assert algorithm.policy is policy
    assert "default" in list_algos()["dummy"]


def test_an_unknown_algorithm_is_the_documented_key_error():
    with pytest.raises(KeyError) as error:
        make_algo("your-algo-unknown", None, None)
    assert str(error.value) == "'Algorithm your-algo-unknown is not registered.'"


def test_overriding_learn_instead_of_learn_impl_is_a_type_error():
    @register_algo("abstract-for-a-test", override=True)
    class Abstract(BaseAlgorithm):
        infer = feedback = should_learn = should_save = should_stop = None
        create_checkpoint = load_checkpoint = None

        def learn(self):
            return 0, {}

    with pytest.raises(TypeError, match="learn_impl"):
        make_algo("abstract-for-a-test", None, None)


CONFIG = """
    import dataclasses
    from plugrl_server.algorithm.base_algorithm import BaseAlgoConfig
    from plugrl_server.algorithm.registration import register_algo_config

    @register_algo_config("my-algo")
    @dataclasses.dataclass
    class MyConfig(BaseAlgoConfig):
        pass
"""
CLASS = """
    from plugrl_server.algorithm.dummy.dummy import DummyAlgorithm
    from plugrl_server.algorithm.registration import register_algo

    @register_algo("my-algo")
    class MyAlgorithm(DummyAlgorithm):
        pass
"""


@pytest.fixture
def contributor(tmp_path):
    """A copy of the package with `algorithm/my_algo/` in it, as the mission's first layout has it."""
    source = Path(plugrl_server.algorithm.__file__).parents[1]
    target = tmp_path / "plugrl_server"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    folder = target / "algorithm" / "my_algo"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "my_algo_config.py").write_text(textwrap.dedent(CONFIG))
    (folder / "my_algo.py").write_text(textwrap.dedent(CLASS))

    def run(imports, program):
        with (target / "algorithm" / "__init__.py").open("a") as file:
            file.write("\n" + imports)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True
        )

    return run


PROGRAM = """
    from plugrl_server.algorithm.registration import list_algos, make_algo
    assert list(list_algos()["my-algo"]) == ["default"], list_algos()
    config = list_algos()["my-algo"]["default"]()
    from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
    from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig
    print(type(make_algo("my-algo", config, DummyPolicy(DummyPolicyConfig()))).__name__)
"""


def test_plain_imports_in_the_package_s_init_register_a_contributor_s_algorithm(contributor):
    result = contributor("from plugrl_server.algorithm.my_algo import my_algo, my_algo_config\n", PROGRAM)
    assert result.stdout == "MyAlgorithm\n", result.stderr


def test_importing_only_the_configuration_ends_in_the_documented_key_error(contributor):
    result = contributor("from plugrl_server.algorithm.my_algo import my_algo_config\n", PROGRAM)
    assert "KeyError: 'Algorithm my-algo is not registered.'" in result.stderr
    assert "the module of its class was never imported" in result.stderr
