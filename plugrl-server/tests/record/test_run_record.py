import json

import numpy as np
import pytest
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import BoxSpace, Declaration, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace
from plugrl_server.record.config_json import RecordError
from plugrl_server.record.run_record import Part, RunRecord, read_record, versions

POLICY = Part("gaussian-policy", "default", "m.policy", "Gaussian", {"obs_dim": 3})
ALGORITHM = Part("ppo", "default", None, None, {"gamma": 0.99})
SPACES = [
    BoxSpace((2,), np.dtype("<f4"), np.array([-1, -np.inf], "<f4"), np.array([1, np.inf], "<f4")),
    DiscreteSpace(4, 1),
    MultiDiscreteSpace(np.array([2, 3])),
    MultiBinarySpace(5),
]


def record(**changes):
    fields = {"run": {"port": 0}, "seed": 7, "versions": {"python": "3"}, "command": ["a", "b"]}
    return RunRecord(policy=POLICY, algorithm=ALGORITHM, **fields | changes)


def through_a_file(written, folder):
    (folder / "config.json").write_text(json.dumps(written.to_json(), allow_nan=False))
    return read_record(folder)


def test_the_file_names_policy_algorithm_seed_versions_and_command(tmp_path):
    """Lesson 26."""
    content = record().to_json()
    assert content["policy"] == {
        "uid": "gaussian-policy",
        "variant": "default",
        "module": "m.policy",
        "class": "Gaussian",
        "config": {"obs_dim": 3},
    }
    assert content["seed"] == 7
    assert content["declaration"] is None
    assert through_a_file(record(), tmp_path) == record()


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.kind)
def test_declared_spaces_come_back(space, tmp_path):
    observation = Observation(
        images={"cam": np.ones((4, 8, 6, 3), np.uint8)},
        states={"s": np.ones((4, 3)), "t": np.ones((4, 1), np.float32)},
        text=["a", "b", "c", "d"],
    )
    declaration = Declaration(space, "Env-v1", 4, 100, None)
    back = through_a_file(record(declaration=declaration, observation=observation), tmp_path)
    assert str(back.declaration) == str(declaration)
    assert type(back.declaration.action) is type(space)
    if space.kind == "box":
        np.testing.assert_array_equal(back.declaration.action.low, space.low)
    assert len(back.observation) == 1
    assert back.observation.images["cam"].shape == (1, 8, 6, 3)
    assert {name: (state.dtype, state.shape) for name, state in back.observation.states.items()} == {
        "s": (np.dtype(np.float64), (1, 3)),
        "t": (np.dtype(np.float32), (1, 1)),
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.pop("policy"), "policy: expected a map, got nothing"),
        (lambda c: c["algorithm"].pop("uid"), "algorithm.uid: expected str, got nothing"),
        (lambda c: c["policy"].update(config=3), "policy.config: expected a map, got int"),
        (lambda c: c.update(seed="1"), "config.json.seed: expected int, got str"),
        (lambda c: c.update(declaration={"action": {"kind": "odd"}}), "declaration"),
        (lambda c: c.update(observation={"images": {}}), "observation.states: expected a map"),
        (
            lambda c: c.update(observation={"images": {}, "states": {"s": {"shape": [1], "dtype": "|O"}}}),
            "observation",
        ),
    ],
)
def test_a_record_that_was_edited_wrongly_is_refused_with_the_place(change, words, tmp_path):
    content = record().to_json()
    change(content)
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(RecordError, match=words) as caught:
        read_record(tmp_path)
    assert str(tmp_path / "config.json") in str(caught.value)


def test_a_missing_or_torn_file_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"config.json: cannot be read \(No such file or directory\)"):
        read_record(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RecordError, match=r"config.json: not JSON"):
        read_record(tmp_path)


def test_versions_name_python_and_the_packages():
    found = versions()
    assert {"python", "plugrl-server", "plugrl-protocol", "torch", "numpy"} <= set(found)
