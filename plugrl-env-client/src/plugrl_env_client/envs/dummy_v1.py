"""`dummy-v1`: an environment that does nothing, for smoke tests and for measuring everything else."""

import dataclasses

import numpy as np
from plugrl_protocol.spaces import BoxSpace

from plugrl_env_client.envs.base_env import BaseEnv, BaseEnvConfig, EnvError, Observation, Step, refuse_info_keys
from plugrl_env_client.registration import register_env, register_env_config

UID = "dummy-v1"
EPISODE_STEPS = 100


@register_env_config(UID)
@dataclasses.dataclass
class DummyConfig(BaseEnvConfig):
    """The size of what is sent."""

    state_dim: int = 4
    """Width of the state `obs`: env index, episode, step, then zeros."""

    images: tuple[str, ...] = ()
    """Names of images to send."""

    image_size: int = 224
    """Height and width of each image, in pixels."""

    action_dim: int | None = None
    """Width of an action. None: nothing is declared and any action is taken."""


@register_env(UID)
class DummyEnv(BaseEnv):
    """Episodes of exactly 100 steps that end by truncation; reward 1 a step; actions change nothing.

    The state `obs` f8[n, state_dim] starts with the env's index, its episode and the step within it, so that whoever
    stores a transition can tell where it comes from. Images are grey, their value the step.
    """

    def __init__(self, config: DummyConfig, num_envs: int) -> None:
        _check(config)
        self.num_envs = num_envs
        self.env_id = UID
        self.max_episode_steps = EPISODE_STEPS
        if config.action_dim is not None:
            bound = np.ones(config.action_dim, np.float32)
            self.action_space = BoxSpace(shape=bound.shape, dtype=bound.dtype, low=-bound, high=bound)
        size = (num_envs, config.image_size, config.image_size, 3)
        self._images = {name: np.zeros(size, np.uint8) for name in config.images}
        self._state = np.zeros((num_envs, config.state_dim))
        self._episode = np.full(num_envs, -1)
        self._time = np.zeros(num_envs, np.int64)
        text = np.full(num_envs, "", np.dtype("<U1"))
        self._observation = Observation(images=self._images, states={"obs": self._state}, text=text)

    def reset(self, seed: int | None) -> Observation:
        """Start an episode everywhere; nothing here is random."""
        del seed
        return self.reset_indices(np.arange(self.num_envs))

    def step(self, actions: np.ndarray) -> Step:
        """Let one step pass."""
        del actions
        self._time += 1
        truncated = self._time >= EPISODE_STEPS
        never = np.zeros(self.num_envs, np.bool_)
        return Step(self._show(), np.ones(self.num_envs, np.float32), never, truncated, {})

    def reset_indices(self, indices: np.ndarray) -> Observation:
        """Start the next episode in some envs."""
        self._time[indices] = 0
        self._episode[indices] += 1
        return self._show()

    def _show(self) -> Observation:
        for column, values in enumerate((np.arange(self.num_envs), self._episode, self._time)):
            if column < self._state.shape[1]:
                self._state[:, column] = values
        for image in self._images.values():
            image[...] = self._time[:, None, None, None]
        return self._observation


def _check(config: DummyConfig) -> None:
    for flag, value in (
        ("state-dim", config.state_dim),
        ("image-size", config.image_size),
        ("action-dim", config.action_dim),
    ):
        if value is not None and value < 1:
            raise EnvError(f"--env.{flag} {value}: expected at least 1")
    if config.image_size != DummyConfig.image_size and not config.images:
        raise EnvError(f"--env.image-size {config.image_size}: expected --env.images too, or no image is sent")
    refuse_info_keys(config, UID)
