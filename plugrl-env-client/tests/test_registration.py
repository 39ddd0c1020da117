"""Names of families: listed without imports, found loosely, replaced by users."""

import dataclasses
import importlib
import importlib.metadata
import logging
import re
import subprocess
import sys

import pytest
from plugrl_env_client import registration
from plugrl_env_client.envs.base_env import BaseEnvConfig, EnvError
from plugrl_env_client.registration import (
    BUILT_IN,
    Family,
    env_config,
    families,
    import_modules,
    make_env,
    register_env,
    register_env_config,
)


@pytest.fixture(autouse=True)
def _own_tables(monkeypatch):
    """What a test registers is forgotten after it; built-in families are imported, and so registered, only once."""
    for uid in BUILT_IN:
        env_config(uid)
    monkeypatch.setattr(registration, "_factories", dict(registration._factories))
    monkeypatch.setattr(registration, "_configs", dict(registration._configs))


@dataclasses.dataclass
class Config(BaseEnvConfig):
    size: int = 1


def make(config, num_envs):
    """A robot.

    More about it.
    """
    return (config, num_envs)


def test_the_built_in_families_are_the_documented_ones():
    assert set(BUILT_IN) >= {"classic-v1", "mujoco-v1", "gym-v1", "dummy-v1", "probe-v1"}
    assert set(BUILT_IN) >= {"atari-v1", "pusht-v1", "robotics-v1"}
    assert set(BUILT_IN) >= {"metaworld-v1", "libero-v1", "robomimic-v1"}


@pytest.mark.parametrize("uid", list(BUILT_IN))
def test_every_built_in_family_has_its_flags(uid):
    assert issubclass(env_config(uid), BaseEnvConfig)


def test_listing_and_flags_import_no_gymnasium():
    """Lesson 23: help is fast because nothing heavy is imported for it."""
    code = (
        "import sys; from plugrl_env_client.registration import families, env_config;"
        "[env_config(family.uid) for family in families()];"
        "print([name for name in ('gymnasium', 'torch', 'mujoco', 'websockets', 'rich') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_users_family_is_registered_listed_and_made():
    register_env("arm-v1")(make)
    register_env_config("arm-v1")(Config)
    assert env_config("arm-v1") is Config
    assert make_env("arm-v1", Config(), 3) == (Config(), 3)
    assert Family("arm-v1", "A robot.") in families()


@pytest.mark.parametrize(
    ("uid", "says"),
    [
        ("clasic-v1", "did you mean classic-v1"),
        ("classic", "did you mean classic-v1"),
        ("Dummy_V1", "did you mean dummy-v1"),
        ("mujoco", "did you mean mujoco-v1"),
        ("xyzzy", "there is no env xyzzy: known: classic-v1, mujoco-v1"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(uid, says):
    with pytest.raises(EnvError, match=says):
        env_config(uid)
    with pytest.raises(EnvError, match=says):
        make_env(uid, Config(), 1)


def test_half_a_registration_says_what_is_missing():
    register_env("half-v1")(make)
    with pytest.raises(EnvError, match="half-v1 is registered without its configuration"):
        env_config("half-v1")
    register_env_config("other-v1")(Config)
    with pytest.raises(EnvError, match="only the configuration of other-v1 is registered"):
        make_env("other-v1", Config(), 1)


def test_two_registrations_by_users_collide_unless_told_otherwise():
    register_env("arm-v1")(make)
    with pytest.raises(KeyError, match="arm-v1 is already registered by"):
        register_env("arm-v1")(lambda config, num_envs: None)
    register_env("arm-v1", override=True)(lambda config, num_envs: "new")
    register_env_config("arm-v1")(Config)
    assert make_env("arm-v1", Config(), 1) == "new"


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_a_users_family_replaces_the_built_in_one_whoever_comes_first(first, caplog, monkeypatch):
    if first == "theirs":  # as if the built-in module had not been imported yet
        monkeypatch.delitem(sys.modules, "plugrl_env_client.envs.dummy_v1")
        del registration._factories["dummy-v1"], registration._configs["dummy-v1"]
    with caplog.at_level(logging.INFO):
        register_env("dummy-v1")(make)
        register_env_config("dummy-v1")(Config)
        importlib.import_module("plugrl_env_client.envs.dummy_v1")
    assert env_config("dummy-v1") is Config
    assert make_env("dummy-v1", Config(), 2) == (Config(), 2)
    assert [record.getMessage() for record in caplog.records].count(
        f"dummy-v1 is now the one of {__name__}, not the built-in"
    ) == 1
    assert next(family for family in families() if family.uid == "dummy-v1").summary == "A robot."


ISOLATED = "uv run --isolated --no-project --with-editable plugrl-protocol --with-editable"
MISSING = [
    (
        "mujoco-v1",
        "the extra mujoco",
        "pip install 'plugrl-env-client[mujoco]'",
        "uv run --extra mujoco plugrl-run-env-client mujoco-v1",
    ),
    (
        "atari-v1",
        "the extra atari",
        "pip install 'plugrl-env-client[atari]'",
        "uv run --extra atari plugrl-run-env-client atari-v1",
    ),
    (
        "pusht-v1",
        "the extra pusht",
        "pip install 'plugrl-env-client[pusht]'",
        "uv run --extra pusht plugrl-run-env-client pusht-v1",
    ),
    (
        "robotics-v1",
        "the extra robotics",
        "pip install 'plugrl-env-client[robotics]' 'mujoco<3.12'",
        f"{ISOLATED} 'plugrl-env-client[robotics]' --with 'mujoco<3.12' plugrl-run-env-client robotics-v1",
    ),
    (
        "metaworld-v1",
        "the package metaworld",
        "pip install plugrl-env-client 'metaworld>=3.0' packaging",
        f"{ISOLATED} plugrl-env-client --with 'metaworld>=3.0' --with packaging plugrl-run-env-client metaworld-v1",
    ),
    (
        "libero-v1",
        "the package libero",
        "pip install plugrl-env-client hf-libero",
        f"{ISOLATED} plugrl-env-client --with hf-libero plugrl-run-env-client libero-v1",
    ),
    (
        "robomimic-v1",
        "the package robosuite",
        "pip install plugrl-env-client 'robosuite>=1.4' 'mujoco<3.4'",
        f"{ISOLATED} plugrl-env-client --with 'robosuite>=1.4' --with 'mujoco<3.4' plugrl-run-env-client robomimic-v1",
    ),
]


@pytest.mark.parametrize(("uid", "what", "elsewhere", "in_a_checkout"), MISSING, ids=[row[0] for row in MISSING])
@pytest.mark.parametrize("is_checkout", [False, True], ids=["elsewhere", "checkout"])
def test_lesson_25_what_is_missing_is_told_with_the_command_that_brings_it(
    monkeypatch, uid, what, elsewhere, in_a_checkout, is_checkout
):
    monkeypatch.setattr(registration.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(registration, "_is_checkout", lambda: is_checkout)
    command = in_a_checkout if is_checkout else elsewhere
    with pytest.raises(EnvError, match=f"^{re.escape(f'{uid} needs {what}: {command}')}$"):
        make_env(uid, env_config(uid)(), 1)
    family = next(family for family in families() if family.uid == uid)
    assert (family.installed, family.install_command) == (False, command)


def test_there_is_such_a_command_for_every_family_that_needs_something():
    assert {row[0] for row in MISSING} == {family.uid for family in BUILT_IN.values() if family.needs}


def test_these_tests_run_in_a_checkout():
    assert registration._is_checkout()


def entry_point(monkeypatch, value):
    point = importlib.metadata.EntryPoint("point-v1", value, "plugrl.envs")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if group == "plugrl.envs" else [])


def test_an_entry_point_is_listed_without_being_loaded_and_loaded_when_named(monkeypatch, tmp_path):
    (tmp_path / "pointed.py").write_text(
        "import dataclasses\n"
        "from plugrl_env_client.envs.base_env import BaseEnvConfig\n"
        "from plugrl_env_client.registration import register_env, register_env_config\n"
        "@register_env_config('point-v1')\n@dataclasses.dataclass\nclass Config(BaseEnvConfig): ...\n"
        "@register_env('point-v1')\ndef make(config, num_envs): return num_envs\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entry_point(monkeypatch, "pointed")
    assert Family("point-v1", "from the entry point pointed") in families()
    assert "pointed" not in sys.modules
    assert make_env("point-v1", env_config("point-v1")(), 4) == 4


def test_an_entry_point_that_cannot_be_loaded_is_named(monkeypatch):
    entry_point(monkeypatch, "no_such_module_here")
    with pytest.raises(EnvError, match=r"the entry point point-v1 .no_such_module_here. cannot be loaded"):
        env_config("point-v1")


def test_modules_are_imported_from_the_current_folder_too(monkeypatch, tmp_path):
    """An installed command searches its own folder, not the one where it is called."""
    (tmp_path / "module_of_here.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    import_modules(("module_of_here",))
    assert sys.modules.pop("module_of_here").__file__ == str(tmp_path / "module_of_here.py")


def test_a_module_that_cannot_be_imported_is_named():
    with pytest.raises(EnvError, match="--import no_such_module_here: No module named"):
        import_modules(("no_such_module_here",))


REGISTERS = """from plugrl_env_client.registration import register_env


@register_env("arm-v1")
def make(config, num_envs): ...
"""


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def f(:\n", r"SyntaxError: invalid syntax \(broken_module.py, line 1\)"),
        ("import no_such_module_here\n", "No module named 'no_such_module_here'"),
        ("\n1 / 0\n", r"ZeroDivisionError: division by zero \(broken_module.py, line 2\)"),
        ("raise ValueError('two\\nlines')\n", r"ValueError: two lines \(broken_module.py, line 1\)"),
        (
            REGISTERS,
            r"KeyError: arm-v1 is already registered by .*test_registration; .* \(broken_module.py, line 4\)",
        ),
    ],
)
def test_a_module_that_breaks_is_named_with_its_line(monkeypatch, tmp_path, code, says):
    register_env("arm-v1")(make)
    (tmp_path / "broken_module.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvError, match=f"^--import broken_module: {says}$"):
        import_modules(("broken_module",))


@pytest.mark.parametrize("name", [".rel", ""])
def test_a_module_without_an_absolute_name_is_refused(name):
    with pytest.raises(
        EnvError, match=f"^--import '{re.escape(name)}': expected a module's full name, as my_pkg.my_env$"
    ):
        import_modules((name,))
