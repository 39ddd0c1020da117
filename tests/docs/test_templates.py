"""What the pages tell a reader to copy works: the guides' templates are the tested ones, and keep the contracts."""

import functools
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
from plugrl_server import assembly
from plugrl_server.algorithm.dppo.dppo import DPPO
from plugrl_server.algorithm.dppo.dppo_config import DPPOConfig
from plugrl_server.algorithm.fpo.fpo import FPO
from plugrl_server.algorithm.fpo.fpo_config import FPOConfig
from plugrl_server.algorithm.registration import list_algos
from plugrl_server.assembly import Selection
from plugrl_server.testing import AlgorithmContract, PolicyContract

from tests.docs import pages
from tests.end_to_end.plugins.my_pkg import robot

FOLDER = pages.ROOT / "docs/algorithms"
TEMPLATE = pages.ROOT / "tests/end_to_end/plugins/my_pkg/plugrl_algorithms.py"


def blocks(page, folder=FOLDER):
    return [block.body for block in pages.blocks((folder / page).read_text()) if block.language == "python"]


@pytest.mark.parametrize("page", ["custom-algorithm.md", "custom-algorithm.zh.md"])
def test_the_pages_show_the_guides_template_word_for_word(page):
    assert TEMPLATE.read_text().strip() in blocks(page)


@functools.cache
def shown_policies():
    """The page's policies as a module, which tyro and dataclasses look up by its name."""
    module = types.ModuleType("your_policies_of_the_page")
    sys.modules[module.__name__] = module
    *listings, test = blocks("custom-policy.md")
    assert "PolicyContract" in test
    for listing in listings:
        exec(listing, vars(module))
    return module


class TestTheSmallestPolicy(PolicyContract):
    def make_policy(self):
        shown = shown_policies()
        return shown.YourPolicy(self.sized(shown.YourPolicyConfig(device="cpu")))


class TestTheFlowPolicy(PolicyContract):
    def make_policy(self):
        shown = shown_policies()
        return shown.YourFlowPolicy(self.sized(shown.YourFlowPolicyConfig(device="cpu", num_steps=3)))


class TestTheDiffusionPolicy(PolicyContract):
    def make_policy(self):
        shown = shown_policies()
        return shown.YourDiffusionPolicy(self.sized(shown.YourDiffusionPolicyConfig(device="cpu", num_steps=3)))


SMALL = {"buffer_size": 16, "batch_size": 16, "update_epochs": 1, "save_interval": 2, "global_steps": 10_000}


class TestTheFlowPolicyUnderFPO(AlgorithmContract):
    def make_algorithm(self):
        return FPO(FPOConfig(**SMALL), TestTheFlowPolicy().make_policy())


class TestTheFlowPolicyUnderDPPO(AlgorithmContract):
    def make_algorithm(self):
        return DPPO(DPPOConfig(**SMALL), TestTheFlowPolicy().make_policy())


class TestTheDiffusionPolicyUnderDPPO(AlgorithmContract):
    def make_algorithm(self):
        return DPPO(DPPOConfig(**SMALL), TestTheDiffusionPolicy().make_policy())


@pytest.mark.parametrize(("policy", "algo"), [("flow", "fpo"), ("flow", "dppo"), ("diffusion", "dppo")])
def test_the_shown_policies_are_taken_by_their_algorithms(policy, algo):
    uid = f"your-{policy}-policy"
    config = {"flow": "YourFlowPolicyConfig", "diffusion": "YourDiffusionPolicyConfig"}[policy]
    policy_config = getattr(shown_policies(), config)()
    assembly.check(Selection(uid, "default", policy_config, algo, "default", list_algos()[algo]["default"]()))


@pytest.mark.parametrize("page", ["custom-environment.md", "custom-environment.zh.md"])
def test_the_pages_show_the_guides_environment_word_for_word(page):
    shown, *_ = blocks(page, pages.ROOT / "docs/environments")
    _, _, template = Path(robot.__file__).read_text().partition('"""\n\n')
    assert shown.strip() == template.strip()


@pytest.mark.parametrize("page", ["custom-environment.md", "custom-environment.zh.md"])
def test_the_pages_test_holds_the_guides_environment_to_its_eighteen_clauses(page, tmp_path):
    *_, shown = blocks(page, pages.ROOT / "docs/environments")
    (tmp_path / "test_robot.py").write_text(shown)
    shutil.copytree(Path(robot.__file__).parent, tmp_path / "my_pkg")
    pytest_there = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_robot.py"]
    told = subprocess.run(pytest_there, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert re.search(r"= 18 passed in", told.stdout), told.stdout
