"""Tasks of one LIBERO suite as a Gymnasium environment, one after the other."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.simulators.scenes import drawing_from, image_space, sentence_space, state_space

ENV_ID = f"{__name__}:plugrl/Libero-v0"
STILL = np.array([0.0] * 6 + [-1.0])  # no motion, the gripper open
STATES = {"robot0_eef_pos": 3, "robot0_eef_quat": 4, "robot0_gripper_qpos": 2}


def load_suite(name: str) -> Any:
    """A suite of LIBERO's.

    Raises:
        EnvError: LIBERO wants to ask where its folders are, as it does when it is first imported.
    """
    try:
        from libero.libero import benchmark
    except EOFError:
        raise EnvError(
            'LIBERO asks for its folders when it is first imported: answer it once, python -c "import libero.libero"'
        ) from None
    return benchmark.get_benchmark_dict()[name]()


class LiberoTask(gymnasium.Env[Any, Any]):
    """One simulation at a time; another task is another simulation, which takes seconds to build.

    Args:
        suite: its name.
        task_ids: the tasks that episodes go through.
        cameras: names of cameras; the images are called `<camera>_image`.
        image_size: height and width in pixels.
        rotate_images: turn them by 180 degrees.
        settle_steps: steps without motion before an episode begins.
    """

    def __init__(
        self,
        suite: str,
        task_ids: Sequence[int],
        *,
        cameras: Sequence[str],
        image_size: int = 256,
        rotate_images: bool = True,
        settle_steps: int = 10,
    ) -> None:
        self._suite = load_suite(suite)
        self._task_ids = tuple(task_ids)
        self._cameras = tuple(cameras)
        self._size = image_size
        self._rotates = rotate_images
        self._settle_steps = settle_steps
        self._turn: int | None = None
        self._task: int | None = None
        self._text = ""
        self._scene: Any = None
        self.action_space = spaces.Box(-1.0, 1.0, (7,), np.float32)
        widths = {**STATES, "state": 8}
        self.observation_space = spaces.Dict(
            {
                **{f"{camera}_image": image_space(image_size) for camera in self._cameras},
                **{name: state_space(width) for name, width in widths.items()},
                "text": sentence_space(),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode of the next task, from one of its initial states."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._turn = seed
        elif self._turn is None:
            self._turn = int(self.np_random.integers(len(self._task_ids)))
        else:
            self._turn += 1
        self._load(self._task_ids[self._turn % len(self._task_ids)])
        starts = self._suite.get_task_init_states(self._task)
        with drawing_from(self.np_random, self._scene.env):
            self._scene.reset()
            observed = self._scene.set_init_state(starts[int(self.np_random.integers(len(starts)))])
            for _ in range(self._settle_steps):
                observed, _, _, _ = self._scene.step(STILL)
        return self._look(observed), {"success": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the simulation; LIBERO ends an episode with its success."""
        observed, reward, _, _ = self._scene.step(np.asarray(action, np.float64))
        success = bool(self._scene.check_success())
        return self._look(observed), float(reward), success, False, {"success": success, "task": self._task}

    def close(self) -> None:
        """Close the simulation."""
        if self._scene is not None:
            self._scene.close()
            self._scene = None
            self._task = None

    def _load(self, task: int) -> None:
        if task == self._task:
            return
        self.close()
        from libero.libero import get_libero_path
        from libero.libero.envs import OffScreenRenderEnv

        described = self._suite.get_task(task)
        scene = Path(get_libero_path("bddl_files")) / described.problem_folder / described.bddl_file
        self._scene = OffScreenRenderEnv(
            bddl_file_name=str(scene),
            camera_names=list(self._cameras),
            camera_heights=self._size,
            camera_widths=self._size,
            ignore_done=True,  # --env.horizon ends episodes
        )
        self._text, self._task = described.language, task

    def _look(self, observed: Mapping[str, Any]) -> dict[str, Any]:
        images = {name: np.asarray(observed[name]) for name in (f"{camera}_image" for camera in self._cameras)}
        if self._rotates:
            images = {name: image[::-1, ::-1] for name, image in images.items()}
        states = {name: np.asarray(observed[name], np.float64) for name in STATES}
        position, quaternion, fingers = states.values()
        state = np.concatenate([position, axis_angle(quaternion), fingers])
        return {**images, **states, "state": state, "text": self._text}


def axis_angle(quaternion: np.ndarray) -> np.ndarray:
    """A rotation as its axis times its angle in radians, f8[3].

    Args:
        quaternion: x, y, z, w as robosuite has it, of length 1.
    """
    w = float(np.clip(quaternion[3], -1.0, 1.0))
    sine = np.sqrt(1.0 - w * w)  # of half the angle
    if np.isclose(sine, 0.0):
        return np.zeros(3)
    rotation: np.ndarray = quaternion[:3] / sine * 2.0 * np.arccos(w)
    return rotation


gymnasium.register(id=ENV_ID.partition(":")[2], entry_point=f"{__name__}:LiberoTask")
