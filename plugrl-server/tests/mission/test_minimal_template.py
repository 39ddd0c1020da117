"""The guide's minimal template, verbatim, works as the guide says."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from plugrl_server import assembly
from plugrl_server.algorithm.base_algorithm import NO_NODE, FeedbackRows
from plugrl_server.algorithm.registration import list_algos, make_algo
from plugrl_server.common.checkpoint_manager import CheckpointManager
from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig
from plugrl_server.testing import AlgorithmContract

GUIDE = Path(__file__).with_name("custom_algorithm_guide.txt").read_text(encoding="utf-8")


def template():
    """The code block between the guide's heading and the next one."""
    found = re.fullmatch(r"最小模板\n\n(?P<code>import .*\n)\n设计规则\n", GUIDE, re.DOTALL)
    assert found is not None
    return found["code"]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """The template as a module of somebody else's, imported once."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "your_algo_of_the_guide.py").write_text(template(), encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("your_algo_of_the_guide")
    finally:
        sys.path.remove(str(folder))


def made(plugin, **config):
    return make_algo("your-algo", plugin.YourAlgoConfig(), DummyPolicy(DummyPolicyConfig(**config)))


def test_it_registers(plugin):
    assert list_algos()["your-algo"] == {"default": plugin.YourAlgoConfig}
    assert plugin.YourAlgoConfig().global_steps == 100_000


def test_it_passes_the_checks_with_the_dummy_policy(plugin):
    selection = assembly.Selection(
        "dummy-policy", "default", DummyPolicyConfig(), "your-algo", "default", plugin.YourAlgoConfig()
    )
    assembly.check(selection)
    assert assembly.missing(selection) == ()
    assert type(assembly.build(selection, seed=0)).__name__ == "YourAlgorithm"


def test_a_run_through_feedback_works(plugin):
    algorithm = made(plugin)
    algorithm.init_optimizers()
    nodes, flags = [NO_NODE] * 2, np.zeros(2, bool)
    for step in range(5):
        obs = {"images": {}, "states": {"s": np.full((2, 3), step)}, "text": np.full(2, "")}
        action, runtime_state = algorithm.infer(obs)
        assert action.shape == (2, 4, 7)
        info = [{"episode": {"r": 2.0 + i, "l": 5, "s": True}} for i in range(2)]
        rows = FeedbackRows(
            obs,
            runtime_state,
            algorithm.derive_train_state(runtime_state),
            flags,
            flags,
            obs,
            np.ones(2, np.float32),
            info,
            np.full(2, step == 4),
            flags,
            nodes,
        )
        assert algorithm.feedback_rows(rows) == 2
        nodes = rows.nodes
    assert algorithm.global_step == 10
    assert not algorithm.should_learn()
    algorithm.pre_learn()
    assert algorithm.learn() == (10, {"rollout/reward": 2.5, "rollout/length": 5.0, "rollout/success": 1.0})
    algorithm.post_learn()
    algorithm.discard_feedback(info={}, next_terminated=True, next_truncated=False)


def test_feedback_takes_keywords_by_the_names_of_the_contract(plugin):
    with pytest.raises(TypeError, match="internal_state"):
        made(plugin).feedback(internal_state=None)


def test_its_checkpoint_goes_through_the_disk(plugin, tmp_path):
    algorithm = made(plugin)
    algorithm.global_step = 42
    CheckpointManager(tmp_path).save(algorithm.create_checkpoint())
    resumed = made(plugin)
    resumed.load_checkpoint(CheckpointManager(tmp_path).load())
    assert resumed.global_step == 42


class TestItsContract(AlgorithmContract):
    """The template keeps the contract of an algorithm, with the policy of the guide's smoke test."""

    learns = False

    @pytest.fixture(autouse=True)
    def _of_the_guide(self, plugin):
        self.plugin = plugin

    def make_algorithm(self):
        return made(self.plugin, action_space=self.action_space)
