"""Acting with a trained policy, without a server."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import BoxSpace, Declaration, DiscreteSpace
from plugrl_server import assembly, load_policy
from plugrl_server.algorithm.dummy.dummy_config import DummyAlgoConfig
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.common.checkpoint_manager import CheckpointError, CheckpointManager
from plugrl_server.loading import LoadingError
from plugrl_server.policy.categorical.categorical_policy_config import CategoricalPolicyConfig
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig
from plugrl_server.record.config_json import config_to_json
from plugrl_server.record.run_record import Part, RunRecord

BOX = BoxSpace((2,), np.dtype("f8"), np.full(2, -0.1), np.full(2, 0.1))
TWO_STATES = {"arm": 2, "base": 1}


def part(uid, variant, config, built):
    cls = type(built)
    return Part(uid, variant, cls.__module__, cls.__qualname__, config_to_json(config))


def run_folder(tmp_path, uid="gaussian-policy", config=None, space=BOX, widths=TWO_STATES, algo="ppo"):
    """A run folder with checkpoints of steps 5 and 10, and the policy of the latter."""
    declaration = None if space is None else Declaration(space)
    observation = Observation({}, {name: np.zeros((1, width)) for name, width in widths.items()}, [""])
    algo_config = {"ppo": PPOConfig, "dummy": DummyAlgoConfig}[algo]()
    selection = assembly.Selection(uid, "default", config or GaussianPolicyConfig(), algo, "default", algo_config)
    selection = assembly.with_declaration(selection, declaration, observation)
    for seed, step in ((1, 5), (2, 10)):
        algorithm = assembly.build(selection, seed=seed)
        algorithm.global_step = step
        CheckpointManager(tmp_path / "checkpoints").save(algorithm.create_checkpoint())
    record = RunRecord(
        policy=part(uid, "default", selection.policy_config, algorithm.policy),
        algorithm=part(algo, "default", selection.algo_config, algorithm),
        run={},
        seed=2,
        versions={},
        command=[],
        declaration=declaration,
        observation=observation,
    )
    (tmp_path / "config.json").write_text(json.dumps(record.to_json()))
    return algorithm.policy


def test_it_acts_like_the_policy_that_was_saved(tmp_path):
    trained = run_folder(tmp_path)
    trained.deterministic = True
    loaded = load_policy(tmp_path)
    assert loaded.step == 10
    assert loaded.action_space == BOX
    obs = {"images": {}, "states": {"arm": np.array([[0.1, 2.0]]), "base": np.array([[3.0]])}, "text": np.array([""])}
    action = loaded.act({"arm": [0.1, 2.0], "base": [3.0]})
    assert action.shape == (2,)
    assert action.dtype == np.float64
    np.testing.assert_array_equal(action, trained.get_action_and_runtime_state(obs)[0][0, 0])


def test_an_earlier_step_can_be_chosen(tmp_path):
    run_folder(tmp_path)
    earlier = load_policy(tmp_path, step=5)
    assert earlier.step == 5
    observation = {"states": {"arm": [1.0, 1.0], "base": [1.0]}, "text": "go"}
    assert not np.array_equal(earlier.act(observation), load_policy(str(tmp_path)).act(observation))


def test_the_noise_is_a_switch(tmp_path):
    run_folder(tmp_path)
    observation = {"arm": [1.0, 1.0], "base": [1.0]}
    still, noisy = load_policy(tmp_path), load_policy(tmp_path, deterministic=False)
    assert np.array_equal(still.act(observation), still.act(observation))
    actions = np.array([noisy.act(observation) for _ in range(20)])
    assert len(np.unique(actions)) > 2
    assert np.abs(actions).max() <= 0.1


def test_a_policy_of_one_state_takes_the_bare_vector_and_discrete_start_is_added(tmp_path):
    run_folder(tmp_path, "categorical-policy", CategoricalPolicyConfig(action_horizon=3), DiscreteSpace(2, 5), {"s": 4})
    loaded = load_policy(tmp_path)
    assert loaded.chunk(np.zeros(4)).shape == (3,)
    action = loaded.act(np.zeros(4))
    assert action.shape == ()
    assert action in (5, 6)


def test_a_run_without_a_declaration_loads_too(tmp_path):
    run_folder(tmp_path, config=GaussianPolicyConfig(obs_dim=3, action_dim=1), space=None)
    assert load_policy(tmp_path).act({"arm": [0.0, 0.0], "base": [0.0]}).shape == (1,)


def test_any_policy_loads(tmp_path):
    run_folder(tmp_path, "dummy-policy", DummyPolicyConfig(), BOX, algo="dummy")
    assert load_policy(tmp_path).chunk(np.zeros(9)).shape == (4, 2)


def test_what_the_policy_cannot_read_is_refused_with_the_key_and_the_width(tmp_path):
    run_folder(tmp_path)
    loaded = load_policy(tmp_path)
    with pytest.raises(ValueError, match="reads arm, base: pass a map"):
        loaded.act(np.zeros(3))
    with pytest.raises(ValueError, match="lacks base"):
        loaded.act({"arm": [0.0, 0.0]})
    with pytest.raises(ValueError, match="obs_dim 4, this run has 3"):
        loaded.act({"arm": [0.0, 0.0, 0.0], "base": [0.0]})


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(LoadingError, match=r"is no run folder that can be loaded: .*config\.json"):
        load_policy(tmp_path)


def test_a_run_without_checkpoints_and_a_missing_step_are_named(tmp_path):
    run_folder(tmp_path)
    with pytest.raises(CheckpointError, match="No checkpoint of step 7"):
        load_policy(tmp_path, step=7)
    (tmp_path / "checkpoints").rename(tmp_path / "gone")
    with pytest.raises(CheckpointError, match="No checkpoint in"):
        load_policy(tmp_path)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"module": "no_such_module"}, "module no_such_module cannot be imported"),
        ({"uid": "unheard-of"}, "Policy unheard-of default is not registered"),
        ({"config": {"wings": 2}}, "has no field wings"),
        ({"config": {"obs_dim": 5, "action_dim": 2}}, "Checkpoint 10 of .* does not fit its policy"),
    ],
)
def test_a_record_that_names_what_is_not_there_is_refused(tmp_path, change, problem):
    run_folder(tmp_path)
    file = Path(tmp_path / "config.json")
    record = json.loads(file.read_text())
    record["policy"].update(change)
    file.write_text(json.dumps(record))
    with pytest.raises(LoadingError, match=problem):
        load_policy(tmp_path)


def test_importing_the_package_imports_no_torch():
    program = "import sys, plugrl_server; plugrl_server.load_policy; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
