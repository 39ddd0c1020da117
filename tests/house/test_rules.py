"""Each house rule finds the broken example that it is for, and leaves a sound one alone."""

from pathlib import Path

import pytest

from tests.house import rules

SOUND = '"""A module."""\n'


@pytest.fixture
def write(tmp_path):
    """Writes a file into a tiny workspace whose only package is `member/src/pack`."""

    def put(name: str, text: str = SOUND) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return tmp_path

    put("member/src/pack/__init__.py")
    put("member/src/pack/engine.py")
    put("member/tests/test_engine.py")
    put("member/pyproject.toml", '[project]\nrequires-python = ">=3.10"\ndependencies = ["numpy>=1.26", "plugrl-x"]\n')
    return put


TREE_RULES = [
    rules.long_files,
    rules.long_functions,
    rules.crowded_folders,
    rules.vague_names,
    rules.untested_modules,
    rules.root_imports,
    rules.undocumented,
    rules.leftovers,
    rules.narrow_ranges,
]


@pytest.mark.parametrize("rule", TREE_RULES, ids=lambda rule: rule.__name__)
def test_a_sound_workspace_breaks_no_rule(write, rule):
    assert rule(write("README.md")) == []


def test_a_file_over_the_limit_is_named_with_its_length(write):
    root = write("member/src/pack/engine.py", SOUND + "x = 1\n" * 400)
    assert rules.long_files(root) == ["member/src/pack/engine.py: 401 lines"]


def test_a_long_function_is_named_and_its_docstring_is_not_counted(write):
    assert rules.long_functions(write("member/src/pack/engine.py", _long(49))) == []
    root = write("member/src/pack/engine.py", _long(50))
    assert rules.long_functions(root) == ["member/src/pack/engine.py:2 f: 51 lines"]


def _long(lines: int) -> str:
    return SOUND + "def f():\n    '''One.\n\n    Two.\n    '''\n" + "    x = 1\n" * lines


def test_a_crowded_folder_is_named_and_init_is_not_counted(write):
    for number in range(7):
        root = write(f"member/src/pack/part{number}.py")
    assert rules.crowded_folders(root) == []
    assert rules.crowded_folders(write("member/src/pack/part8.py")) == ["member/src/pack: 9 modules"]


@pytest.mark.parametrize("name", ["utils.py", "misc.py", "helpers.py", "utils/engine.py"])
def test_a_vague_name_is_found(write, name):
    assert rules.vague_names(write(f"member/src/pack/{name}")) != []


def test_a_module_without_its_test_file_is_found(write):
    root = write("member/src/pack/inner/wheel.py")
    assert rules.untested_modules(root) == ["member/src/pack/inner/wheel.py"]
    assert rules.untested_modules(write("member/tests/inner/test_wheel.py")) == []


@pytest.mark.parametrize(
    "line", ["import pack", "from pack import Engine", "from . import Engine", "from pack import engine, x"]
)
def test_an_import_of_the_own_root_is_found(write, line):
    assert rules.root_imports(write("member/src/pack/wheel.py", f"{SOUND}{line}\n")) == ["member/src/pack/wheel.py:2"]


@pytest.mark.parametrize(
    "line", ["import pack.engine", "from pack.engine import x", "from .engine import x", "from pack import engine"]
)
def test_an_import_of_a_sibling_module_is_fine(write, line):
    assert rules.root_imports(write("member/src/pack/wheel.py", f"{SOUND}{line}\n")) == []


def test_everything_public_needs_a_docstring_and_private_things_do_not(write):
    root = write(
        "member/src/pack/engine.py",
        "class Engine:\n    def run(self): ...\n    def _spark(self): ...\n    @override\n    def stop(self): ...\n",
    )
    assert rules.undocumented(root) == [
        "member/src/pack/engine.py",
        "member/src/pack/engine.py:1 Engine",
        "member/src/pack/engine.py:2 run",
    ]


@pytest.mark.parametrize("mark", ["# TODO: later", "raise NotImplementedError", "# FIXME"])
def test_unfinished_work_is_found_in_packages_and_examples(write, mark):
    assert len(rules.leftovers(write("member/src/pack/engine.py", f"{SOUND}{mark}\n"))) == 1
    assert len(rules.leftovers(write("examples/robot/robot.py", f"{SOUND}{mark}\n"))) == 2


@pytest.mark.parametrize(
    "text", ["see /" + "root/x", "cd /" + "home/somebody/x", "https://pyfiles.org/simple", "registry.somejs"]
)
def test_a_machine_path_or_a_registry_host_is_found(write, text):
    root = write("README.md", text)
    assert len(rules.private_places(root, [root / "README.md"])) == 1


@pytest.mark.parametrize("requirement", ["numpy==2.0", "numpy>=1.26,<3", "numpy~=2.0", "numpy"])
def test_a_capped_pinned_or_bare_dependency_is_found(write, requirement):
    root = write("member/pyproject.toml", f'[project]\nrequires-python = ">=3.10"\ndependencies = ["{requirement}"]\n')
    assert rules.narrow_ranges(root) == [f"member/pyproject.toml: {requirement}"]
