"""`pusht-v1`: pushing a T onto its goal, Diffusion Policy's task (arXiv:2303.04137), from gym-pusht (extra `pusht`)."""

import dataclasses
from typing import Literal

from plugrl_env_client.envs.base_env import BaseEnv
from plugrl_env_client.envs.gym_flags import GymFlags
from plugrl_env_client.registration import register_env, register_env_config

UID = "pusht-v1"
ENV_ID = "gym_pusht/PushT-v0"


@register_env_config(UID)
@dataclasses.dataclass
class PushtConfig(GymFlags):
    """What is observed, and how n environments are run."""

    observe: Literal["state", "keypoints", "pixels", "pixels-agent-pos"] = "state"
    """state: `obs`, agent x, y and the block's x, y, angle. keypoints: `environment_state`, 8 points of the T, and
    `agent_pos`. pixels: `image`. pixels-agent-pos: image `pixels` and state `agent_pos`."""

    image_size: int = 96
    """Height and width of the image, in pixels."""


_OBS_TYPES = {
    "state": "state",
    "keypoints": "environment_state_agent_pos",
    "pixels": "pixels",
    "pixels-agent-pos": "pixels_agent_pos",
}


@register_env(UID)
def make_pusht(config: PushtConfig, num_envs: int) -> BaseEnv:
    """Build the environments: episodes of 300 steps, a success when 95 % of the goal is covered.

    Raises:
        EnvError: gym-pusht does not take the arguments.
    """
    import gym_pusht  # noqa: F401 - registers its env

    from plugrl_env_client.envs.gym_adapter.making import make_gym_env, require_at_least

    require_at_least("--env.image-size", config.image_size, 1)
    defaults = {
        "obs_type": _OBS_TYPES[config.observe],
        "observation_width": config.image_size,
        "observation_height": config.image_size,
    }
    return make_gym_env(ENV_ID, num_envs, flags=config, defaults=defaults)
