"""FAKES of the simulators' interfaces: what our code calls, with the simulators' names, shapes and habits, no physics.

Meta-World and robosuite are also run for real where they are installed: `testing/test_builtins_keep_the_contract.py`,
in nightly.yml. LIBERO's scenes do not come with its package: its family is tested with the fake alone.
"""

import importlib.machinery
import sys
import types
from typing import ClassVar

import numpy as np
import pytest

IMAGE_ROWS = 20  # a fake camera's rows are 0, 20, 40, ...: upside down they fall


def module(name, **names):
    """A module that `import` and `find_spec` find."""
    made = types.ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    vars(made).update(names)
    return made


def picture(size, blue=0):
    """An image whose rows count up in red, whose columns count up in green."""
    image = np.zeros((size, size, 3), np.uint8)
    image[..., 0] = IMAGE_ROWS * np.arange(size)[:, None]
    image[..., 1] = IMAGE_ROWS * np.arange(size)
    image[..., 2] = blue
    return image


@pytest.fixture
def install(monkeypatch):
    """Put fake modules where `import` looks first."""

    def put(*modules):
        for each in modules:
            monkeypatch.setitem(sys.modules, each.__name__, each)

    return put


# Meta-World ----------------------------------------------------------------------------------------------------------


class FakeSawyer:
    """A task of Meta-World's: ignores `reset(seed)`, draws as its flags say, ends nothing but by 500 steps."""

    made: ClassVar = []

    def __init__(self, seed=None):
        self.model, self.data = object(), {"of": self}
        self._freeze_rand_vec, self.seeded_rand_vec = True, False
        self.np_random = np.random.default_rng(seed)
        self.hidden, self.closed, self.seeds = False, False, []
        FakeSawyer.made.append(self)

    def seed(self, seed):
        self.seeds.append(seed)
        self.np_random = np.random.default_rng(seed)

    def reset(self, seed=None, options=None):
        assert not self._freeze_rand_vec
        assert self.seeded_rand_vec
        self.time, self.goal = 0, self.np_random.uniform(size=3)
        return self.look(), {}

    def step(self, action):
        assert action.shape == (4,)
        self.time += 1
        success = float(self.time == 3)  # touched in passing
        return self.look(), float(action.sum()), False, self.time >= 500, {"success": success, "near_object": 0.5}

    def look(self):
        shown = np.full(39, float(self.time))
        shown[36:] = 0 if self.hidden else self.goal
        return shown

    def close(self):
        self.closed = True


class FakeHiddenSawyer(FakeSawyer):
    """The goal is zeros."""

    def look(self):
        self.hidden = True
        return super().look()


class FakeRenderer:
    """Stands for mujoco.Renderer."""

    made: ClassVar = []

    def __init__(self, model, height, width):
        self.size, self.closed, self.camera = height, False, None
        assert height == width
        FakeRenderer.made.append(self)

    def update_scene(self, data, camera):
        self.camera, self.time = camera, data["of"].time

    def render(self):
        return picture(self.size, blue=self.time)

    def close(self):
        self.closed = True


@pytest.fixture
def fake_metaworld(install):
    """The fake of Meta-World 3 and of MuJoCo's renderer."""
    names = ("reach-v3", "door-open-v3")
    tables = module(
        "metaworld.env_dict",
        ALL_V3_ENVIRONMENTS=dict.fromkeys(names),
        ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE={f"{name}-goal-observable": FakeSawyer for name in names},
        ALL_V3_ENVIRONMENTS_GOAL_HIDDEN={f"{name}-goal-hidden": FakeHiddenSawyer for name in names},
    )
    install(module("metaworld", env_dict=tables), tables, module("mujoco", Renderer=FakeRenderer))
    FakeSawyer.made, FakeRenderer.made = [], []
    return FakeSawyer


# robosuite -----------------------------------------------------------------------------------------------------------


class FakeRobosuite:
    """A simulation of robosuite 1.4: draws from NumPy's global generator, images upside down, never done."""

    made: ClassVar = []
    objects = 10

    def __init__(self, name, **arguments):
        self.name, self.arguments, self.closed = name, arguments, False
        self.time, self.cube = 0, np.zeros(3)
        self.action_spec = np.full(7, -1.0), np.full(7, 1.0)
        FakeRobosuite.made.append(self)

    def draw(self):
        return np.random.uniform(size=3)  # noqa: NPY002 - as robosuite does

    def observation_spec(self):
        return self.look()

    def reset(self):
        self.time, self.cube = 0, self.draw()
        return self.look()

    def step(self, action):
        assert action.dtype == np.float64
        self.time += 1
        return self.look(), float(FakeRobosuite._check_success(self)), False, {}

    def _check_success(self):
        return self.time >= 6

    def look(self):
        shown = {
            "robot0_joint_pos": np.zeros(7),
            "robot0_eef_pos": np.full(3, float(self.time)),
            "robot0_eef_quat": np.array([0.0, 0.0, 0.0, 1.0]),
            "robot0_eef_quat_site": np.zeros(4, np.float32),
            "robot0_gripper_qpos": np.zeros(2),
            "object-state": np.resize(self.cube, self.objects),
        }
        size = self.arguments.get("camera_heights")
        cameras = self.arguments.get("camera_names", []) if self.arguments["use_camera_obs"] else []
        return {**shown, **{f"{camera}_image": picture(size) for camera in cameras}}

    def close(self):
        self.closed = True


class FakeRobosuite15(FakeRobosuite):
    """A simulation of robosuite 1.5: a generator of its own, which its parts hold on to."""

    def __init__(self, name, **arguments):
        super().__init__(name, **arguments)
        self.rng = np.random.default_rng()
        self.sampler = self.rng

    def draw(self):
        return self.sampler.uniform(size=3)

    def _check_success(self):
        return {"task": super()._check_success(), "grasped": True}


@pytest.fixture(params=[FakeRobosuite, FakeRobosuite15], ids=["robosuite 1.4", "robosuite 1.5"])
def fake_robosuite(install, request):
    """The fake of robosuite, in both generations."""
    macros = module("robosuite.macros", IMAGE_CONVENTION="opengl")
    robosuite = module("robosuite", make=request.param, macros=macros, ALL_ENVIRONMENTS={"Lift", "ToolHang"})
    install(robosuite, macros)
    FakeRobosuite.made = []
    return request.param


# LIBERO --------------------------------------------------------------------------------------------------------------


class FakeLiberoScene:
    """LIBERO's OffScreenRenderEnv: a robosuite 1.4 simulation inside, ends with the success."""

    made: ClassVar = []

    def __init__(self, bddl_file_name, camera_names, camera_heights, camera_widths, ignore_done):
        self.file, self.closed, self.still = bddl_file_name, False, 0
        cameras = {"use_camera_obs": True, "camera_names": camera_names, "camera_heights": camera_heights}
        self.env = FakeRobosuite("Libero", **cameras)
        FakeLiberoScene.made.append(self)

    def reset(self):
        return self.env.reset()

    def set_init_state(self, state):
        self.env.time, self.env.cube = 0, state
        return {**self.env.look(), "robot0_eef_pos": state}

    def step(self, action):
        if action.tolist() == [0.0] * 6 + [-1.0]:
            self.still += 1
            self.env.time -= 1  # objects settle, no time of the task passes
        observed, reward, _, info = self.env.step(action)
        return (
            {**observed, "robot0_eef_pos": observed["robot0_eef_pos"] + self.env.cube},
            reward,
            self.check_success(),
            info,
        )

    def check_success(self):
        return self.env._check_success()

    def close(self):
        self.closed = True


class FakeSuite:
    """Three tasks with four initial states each."""

    def get_num_tasks(self):
        return 3

    def get_task(self, number):
        names = {"problem_folder": "libero_goal", "bddl_file": f"task_{number}.bddl", "language": f"do task {number}"}
        return types.SimpleNamespace(**names)

    def get_task_init_states(self, number):
        return [np.array([number, state, 0.0]) for state in range(4)]


@pytest.fixture
def fake_libero(install):
    """The fake of LIBERO."""
    suites = ("libero_spatial", "libero_goal")
    benchmark = module("libero.libero.benchmark", get_benchmark_dict=lambda: dict.fromkeys(suites, FakeSuite))
    scenes = module("libero.libero.envs", OffScreenRenderEnv=FakeLiberoScene)
    inner = module("libero.libero", benchmark=benchmark, envs=scenes, get_libero_path=lambda what: f"at/{what}")
    install(module("libero", libero=inner), inner, benchmark, scenes)
    FakeLiberoScene.made = []
    return FakeLiberoScene
