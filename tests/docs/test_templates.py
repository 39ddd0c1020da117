"""What the pages tell a reader to copy works: the guides' templates are the tested ones, and keep the contracts."""

import functools
import sys
import types
from pathlib import Path

import pytest
from plugrl_env_client.registration import env_config, make_env
from plugrl_env_client.testing import EnvContract
from plugrl_server.testing import PolicyContract

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
def smallest_policy():
    """The page's policy as a module, which tyro and dataclasses look up by its name."""
    module = types.ModuleType("your_policy_of_the_page")
    sys.modules[module.__name__] = module
    exec(blocks("custom-policy.md")[0], vars(module))
    return module


class TestTheSmallestPolicy(PolicyContract):
    def make_policy(self):
        shown = smallest_policy()
        return shown.YourPolicy(self.sized(shown.YourPolicyConfig(device="cpu")))


@pytest.mark.parametrize("page", ["custom-environment.md", "custom-environment.zh.md"])
def test_the_pages_show_the_guides_environment_word_for_word(page):
    shown, *_ = blocks(page, pages.ROOT / "docs/environments")
    _, _, template = Path(robot.__file__).read_text().partition('"""\n\n')
    assert shown.strip() == template.strip()


class TestTheGuidesEnvironment(EnvContract):
    def make_env(self, num_envs):
        return make_env("robot-v1", env_config("robot-v1")(), num_envs)
