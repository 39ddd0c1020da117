"""What the pages tell a reader to copy works: the guide's template is the tested one, the smallest policy is sound."""

import functools
import sys
import types

import pytest
from plugrl_server.testing import PolicyContract

from tests.docs import pages

FOLDER = pages.ROOT / "docs/algorithms"
TEMPLATE = pages.ROOT / "tests/end_to_end/plugins/my_pkg/plugrl_algorithms.py"


def blocks(page):
    return [block.body for block in pages.blocks((FOLDER / page).read_text()) if block.language == "python"]


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
