"""This repository keeps its own house rules (ARCHITECTURE.md, "House rules")."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.house import rules

ROOT = Path(__file__).resolve().parents[2]

# Modules that hold constants only: they are tested where they are used.
NEEDS_NO_TEST_FILE = {
    "plugrl-protocol/src/plugrl_protocol/codec/limits.py",
}


def tracked() -> list[Path]:
    """Every file under version control, as git lists them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_the_rules_look_at_every_member():
    assert [package.name for package in rules.packages(ROOT)] == [
        "plugrl_env_client",
        "plugrl_protocol",
        "plugrl_server",
    ]
    assert len(rules.modules(ROOT)) > 20


@pytest.mark.parametrize(
    "rule",
    [
        rules.long_files,
        rules.long_functions,
        rules.crowded_folders,
        rules.vague_names,
        rules.root_imports,
        rules.undocumented,
        rules.leftovers,
        rules.narrow_ranges,
    ],
    ids=lambda rule: rule.__name__,
)
def test_the_house_is_in_order(rule):
    assert rule(ROOT) == []


def test_every_module_has_its_test_file():
    untested = set(rules.untested_modules(ROOT))
    assert untested - NEEDS_NO_TEST_FILE == set()
    assert NEEDS_NO_TEST_FILE - untested == set(), "the allow-list names modules that have a test file or are gone"


def test_no_file_names_a_machine_or_a_registry():
    assert rules.private_places(ROOT, [path for path in tracked() if path.parent != Path(__file__).parent]) == []


def test_the_lock_file_is_generated_and_never_tracked():
    assert ROOT / "uv.lock" not in tracked()
    assert "uv.lock" in (ROOT / ".gitignore").read_text().split()


def test_the_ci_script_is_executable():
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_the_light_packages_keep_their_promised_floors():
    """They run on Python 3.10, numpy 1.26, gymnasium 1.1 and websockets 13."""
    floors: dict[str, str] = {}
    for member in ("plugrl-protocol", "plugrl-env-client"):
        project = tomllib.loads((ROOT / member / "pyproject.toml").read_text())["project"]
        assert project["requires-python"] == ">=3.10"
        floors |= dict(re.findall(r"(\w+)>=([\d.]+)", " ".join(project["dependencies"])))
    assert floors["numpy"] == "1.26"
    assert floors["gymnasium"] == "1.1"
    assert floors["websockets"] == "13.0"


def test_the_root_passes_every_extra_of_its_members_on():
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = root["optional-dependencies"]
    for member in ("plugrl-protocol", "plugrl-env-client", "plugrl-server"):
        project = tomllib.loads((ROOT / member / "pyproject.toml").read_text())["project"]
        for extra in project.get("optional-dependencies", {}):
            assert f"{member}[{extra}]" in extras[extra]
