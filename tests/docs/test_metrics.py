"""What a built-in algorithm reports is described, and nothing that is not there: on the page of the run folder, and in
the README of the algorithm itself."""

import dataclasses
import importlib
import re
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import pytest
from plugrl_server.algorithm.builtins import BUILTIN_ALGORITHMS
from plugrl_server.algorithm.concurrent.remote_learner import RemoteLearner
from plugrl_server.algorithm.registration import list_algos, make_algo
from plugrl_server.policy.registration import list_policies, make_policy
from plugrl_server.testing import AlgorithmContract

from tests.docs import pages

PAGES = [pages.ROOT / "docs/guide/run-folder.md", pages.ROOT / "docs/guide/run-folder.zh.md"]
SMALL = {
    "buffer_size": 16,
    "batch_size": 8,
    "update_epochs": 1,
    "learning_starts": 8,
    "report_interval": 1,
    "learn_every": 16,
    "global_steps": 1000,
    "num_episodes": 4,
    "num_steps": 2,
    "hidden_sizes": (8,),
    "actor_hidden_sizes": (8, 8, 8),
    "critic_hidden_sizes": (8, 8, 8),
    "device": "cpu",
}
POLICIES = {
    "ppo": "gaussian-policy",
    "sac": "sac-policy",
    "fpo": "fpo-policy",
    "dppo": "dppo-policy",
    "dummy": "dummy-policy",
    "eval": "gaussian-policy",
}


def small(config_class):
    return config_class(**{f.name: SMALL[f.name] for f in dataclasses.fields(config_class) if f.name in SMALL})


class One(AlgorithmContract):
    """Drives one built-in algorithm by the server's own trainer."""

    def __init__(self, uid):
        self.uid = uid

    def make_algorithm(self):
        policy_config = small(list_policies()[POLICIES[self.uid]]["default"])
        policy = make_policy(POLICIES[self.uid], self.sized(policy_config))
        return make_algo(self.uid, small(list_algos()[self.uid]["default"]), policy)


One.__test__ = False


def reported(uid):
    """The names of the metrics of the learn steps of an algorithm, and of what it came to."""
    with One(uid).rehearsal() as run:
        run.until(lambda: False, exchanges=40)
        results = run.algorithm.results()
    return {name for metrics in run.metrics for name in metrics or ()} | {*(results.metrics if results else ())}


def described(page):
    rows = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+/\w+)`", row.split("|")[1])}


@pytest.fixture(scope="module")
def of_each():
    """The names of the metrics of each built-in algorithm."""
    found = {built_in.uid: reported(built_in.uid) for built_in in BUILTIN_ALGORITHMS}
    assert all("losses/" in " ".join(found[uid]) for uid in ("ppo", "sac", "fpo", "dppo"))
    found["sac"] |= RemoteLearner.metrics(SimpleNamespace(_reports=[], behind=0)).keys()
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_describes_the_metrics_that_are_reported(page, of_each):
    names = {"time/steps_per_second"}.union(*of_each.values())  # the server's report adds it
    assert names - described(page) == set()
    assert described(page) - names == set()


@pytest.mark.parametrize("built_in", BUILTIN_ALGORITHMS, ids=lambda built_in: built_in.uid)
def test_the_readme_of_an_algorithm_describes_its_metrics(built_in, of_each):
    """`server/*` stands for all of a group."""
    readme = Path(importlib.import_module(built_in.config_module).__file__).with_name("README.md")
    groups = re.findall(r"`(\w+/\*)`", readme.read_text())
    names = of_each[built_in.uid]
    assert {name for name in names if not any(fnmatch(name, group) for group in groups)} - described(readme) == set()
    assert described(readme) - names == set()
