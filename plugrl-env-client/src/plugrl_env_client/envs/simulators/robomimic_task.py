"""One robosuite task as a Gymnasium environment, observed under robomimic's names."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from plugrl_env_client.envs.simulators.scenes import drawing_from, image_space, robot_states, state_space, succeeded

ENV_ID = f"{__name__}:plugrl/Robomimic-v0"


class RobomimicTask(gymnasium.Env[Any, Any]):
    """A robosuite simulation with a generator of its own.

    Args:
        task: its name in robosuite.
        arguments: of `robosuite.make`; what concerns rendering, observations and the horizon is replaced.
        cameras: names of cameras; the images are called `<camera>_image`.
        image_size: height and width in pixels.
        terminate_on_success: end with the success.
    """

    def __init__(
        self,
        task: str,
        arguments: Mapping[str, Any],
        *,
        cameras: Sequence[str] = (),
        image_size: int = 84,
        terminate_on_success: bool = True,
    ) -> None:
        import robosuite
        from robosuite import macros

        ours: dict[str, Any] = {
            "has_renderer": False,
            "has_offscreen_renderer": bool(cameras),
            "use_camera_obs": bool(cameras),
            "use_object_obs": True,
            "ignore_done": True,  # --env.horizon ends episodes
        }
        if cameras:
            ours |= {"camera_names": list(cameras), "camera_heights": image_size, "camera_widths": image_size}
        kept = {name: value for name, value in arguments.items() if not name.startswith("camera_")}
        self._sim = robosuite.make(task, **{**kept, **ours})
        self._images = tuple(f"{camera}_image" for camera in cameras)
        self._terminates = terminate_on_success
        self._upside_down = macros.IMAGE_CONVENTION == "opengl"
        low, high = self._sim.action_spec
        self.action_space = spaces.Box(np.asarray(low, np.float32), np.asarray(high, np.float32), dtype=np.float32)
        states = robot_states(self._sim.observation_spec())
        self.observation_space = spaces.Dict(
            {
                **{name: state_space(value.size) for name, value in states.items()},
                **{name: image_space(image_size) for name in self._images},
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode with the objects elsewhere."""
        super().reset(seed=seed, options=options)
        with drawing_from(self.np_random, self._sim):
            observed = self._sim.reset()
        return self._look(observed), {"success": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the simulation; a success is what its own check says."""
        observed, reward, _, _ = self._sim.step(np.asarray(action, np.float64))
        success = succeeded(self._sim)
        return self._look(observed), float(reward), success and self._terminates, False, {"success": success}

    def close(self) -> None:
        """Close the simulation."""
        self._sim.close()

    def _look(self, observed: Mapping[str, Any]) -> dict[str, Any]:
        images = {name: np.asarray(observed[name]) for name in self._images}
        if self._upside_down:
            images = {name: image[::-1] for name, image in images.items()}
        return {**robot_states(observed), **images}


gymnasium.register(id=ENV_ID.partition(":")[2], entry_point=f"{__name__}:RobomimicTask")
