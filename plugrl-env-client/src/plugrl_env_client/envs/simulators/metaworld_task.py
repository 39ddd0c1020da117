"""One Meta-World task as a Gymnasium environment: seeded by `reset`, with cameras, a text and a success that lasts."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from plugrl_env_client.envs.simulators.scenes import image_space, sentence_space, state_space

ENV_ID = f"{__name__}:plugrl/Metaworld-v0"
WIDTH = 39


class MetaworldTask(gymnasium.Env[Any, Any]):
    """A task whose start and goal are drawn anew in every episode.

    Meta-World itself ignores the seed of `reset` and draws from NumPy's global generator; here every env has a
    generator of its own, which `reset(seed)` seeds.

    Args:
        task: such as `reach-v3`.
        goal_hidden: zeros instead of the goal.
        cameras: names of the images.
        image_size: height and width in pixels.
        terminate_on_success: end with the first success.
    """

    def __init__(
        self,
        task: str,
        *,
        goal_hidden: bool = False,
        cameras: Sequence[str] = (),
        image_size: int = 224,
        terminate_on_success: bool = False,
    ) -> None:
        self._sim = _simulation(task, goal_hidden)
        self._cameras = tuple(cameras)
        self._size = image_size
        self._terminates = terminate_on_success
        self._text = task.removesuffix("-v3").replace("-", " ")
        self._succeeded = False
        self._seeded = False
        self._renderer: Any = None
        self.action_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        images = {camera: image_space(image_size) for camera in self._cameras}
        self.observation_space = spaces.Dict({"obs": state_space(WIDTH), **images, "text": sentence_space()})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode with another start and goal."""
        super().reset(seed=seed, options=options)
        if seed is not None or not self._seeded:
            self._sim.seed(int(self.np_random.integers(2**31)) if seed is None else seed)
            self._seeded = True
        self._succeeded = False
        observed, _ = self._sim.reset()
        return self._look(observed), {"success": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the simulation."""
        observed, reward, _, truncated, info = self._sim.step(action)
        self._succeeded = self._succeeded or bool(info["success"])
        told = {**info, "success": self._succeeded}
        return self._look(observed), float(reward), self._terminates and self._succeeded, bool(truncated), told

    def close(self) -> None:
        """Close the renderer and the simulation."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        self._sim.close()

    def _look(self, observed: np.ndarray) -> dict[str, Any]:
        return {"obs": observed, **{camera: self._image(camera) for camera in self._cameras}, "text": self._text}

    def _image(self, camera: str) -> np.ndarray:
        if self._renderer is None:
            import mujoco

            self._renderer = mujoco.Renderer(self._sim.model, self._size, self._size)
        self._renderer.update_scene(self._sim.data, camera=camera)
        image: np.ndarray = self._renderer.render()
        # These four hang upside down in Meta-World's scenes.
        return image[::-1, ::-1] if camera.startswith("corner") else image


def _simulation(task: str, goal_hidden: bool) -> Any:
    from metaworld import env_dict

    if goal_hidden:
        sim = env_dict.ALL_V3_ENVIRONMENTS_GOAL_HIDDEN[f"{task}-goal-hidden"](seed=0)
    else:
        sim = env_dict.ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE[f"{task}-goal-observable"](seed=0)
    sim._freeze_rand_vec = False  # another start in every episode,
    sim.seeded_rand_vec = True  # drawn from its own generator
    return sim


gymnasium.register(id=ENV_ID.partition(":")[2], entry_point=f"{__name__}:MetaworldTask")
