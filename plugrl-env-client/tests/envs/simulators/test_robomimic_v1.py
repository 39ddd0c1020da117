"""robomimic-v1 on a FAKE robosuite; on the real one in `testing/test_builtins_keep_the_contract.py` (nightly.yml)."""

import json
import types

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.simulators.robomimic_v1 import RobomimicConfig, make_robomimic, read_env_args
from plugrl_env_client.testing import EnvContract

ENV_ARGS = {"env_name": "ToolHang", "env_version": "1.4.1", "type": 1, "env_kwargs": {"robots": ["Sawyer"]}}


@pytest.fixture(autouse=True)
def _fakes(fake_robosuite):
    pass


class TestContract(EnvContract):
    def make_env(self, num_envs):
        return make_robomimic(RobomimicConfig(horizon=5, cameras=("agentview",), image_size=6), num_envs)


def test_the_default_is_lift_without_images():
    env = make_robomimic(RobomimicConfig(), 2)
    observed = env.reset(0)
    shapes = {name: state.shape for name, state in observed.states.items()}
    assert shapes == {
        "robot0_eef_pos": (2, 3),
        "robot0_eef_quat": (2, 4),
        "robot0_gripper_qpos": (2, 2),
        "object": (2, 10),
    }
    assert not observed.images
    assert (env.env_id, env.max_episode_steps, env.action_space.shape) == ("robosuite/Lift", 400, (7,))


def test_flags_reach_robosuite(fake_robosuite):
    flags = {
        "name": "ToolHang",
        "robots": ("Panda", "Sawyer"),
        "cameras": ("frontview",),
        "image_size": 6,
        "horizon": 2,
    }
    env = make_robomimic(RobomimicConfig(**flags), 1)
    assert env.reset(0).images["frontview_image"].shape == (1, 6, 6, 3)
    assert fake_robosuite.made[0].arguments["robots"] == ["Panda", "Sawyer"]
    assert env.step(np.zeros((1, 7), np.float32)).truncated.tolist() == [False]
    told = env.step(np.zeros((1, 7), np.float32))
    assert told.truncated.tolist() == [True]
    assert told.infos["success"].tolist() == [False]


def test_a_datasets_env_is_made_from_its_env_args(fake_robosuite, tmp_path):
    path = tmp_path / "env.json"
    path.write_text(json.dumps(ENV_ARGS))
    env = make_robomimic(RobomimicConfig(env_args=str(path)), 1)
    assert env.env_id == "robosuite/ToolHang"
    assert fake_robosuite.made[0].name == "ToolHang"
    assert fake_robosuite.made[0].arguments["robots"] == ["Sawyer"]


def test_env_args_are_read_out_of_a_dataset(install, tmp_path):
    class FakeFile(dict):
        def __init__(self, path, mode):
            super().__init__(data=types.SimpleNamespace(attrs={"env_args": json.dumps(ENV_ARGS)}))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return False

    h5py = types.ModuleType("h5py")
    h5py.File = FakeFile
    install(h5py)
    assert read_env_args(str(tmp_path / "low_dim_v141.hdf5")) == ("ToolHang", {"robots": ["Sawyer"]})


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "No such file"), ("{", "env.json: "), ("[1]", "expected a map with env_name"), ("{}", "expected a map")],
)
def test_a_file_that_is_no_env_args_is_refused(tmp_path, text, says):
    path = tmp_path / "env.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(EnvError, match=f"--env.env-args .*{says}"):
        read_env_args(str(path))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"name": "Lft"}, "did you mean Lift"),
        ({"image_size": 0}, "--env.image-size 0: expected at least 1"),
        ({"horizon": 0}, "--env.horizon 0: expected at least 1"),
    ],
)
def test_a_mistake_is_refused_by_flag(flags, says):
    with pytest.raises(EnvError, match=says):
        make_robomimic(RobomimicConfig(**flags), 1)
