"""`atari-v1`: the Arcade Learning Environment with DeepMind's preprocessing (extra `atari`).

What DQN (Mnih et al. 2015) and all that is compared with it see: up to 30 no-ops at the start, FIRE pressed where a
game waits for it, every action repeated for 4 frames, the maximum of the last two, 84 x 84 grey pixels, the last 4
images as channels, rewards clipped to -1 .. 1. Actions do not stick unless asked for, as in the `NoFrameskip-v4` ids.

`--env.vectorization own` is ALE's vector env in C++, with the same preprocessing done there.
"""

import dataclasses
import functools
from typing import Any

from plugrl_env_client.envs.base_env import BaseEnv, EnvError
from plugrl_env_client.envs.gym_flags import GymFlags, parse_kwargs
from plugrl_env_client.registration import register_env, register_env_config

UID = "atari-v1"
MAX_FRAMES = 108_000  # half an hour of play
_MOST_OWN_STACK = 4  # a longer stack of grey images cannot be told from an image's rows


@register_env_config(UID)
@dataclasses.dataclass
class AtariConfig(GymFlags):
    """Which game, what is observed of it, and how n of them are run."""

    name: str = "Pong"
    """A game: Pong, Breakout, SpaceInvaders, MontezumaRevenge, ..., or its id, such as ALE/Pong-v5."""

    frame_skip: int = 4
    """Frames for which an action is repeated."""

    frame_stack: int = 4
    """How many of the last images are sent, as channels, oldest first."""

    screen_size: int = 84
    """Height and width of the image, in pixels."""

    grayscale: bool = True
    """Grey images instead of RGB."""

    noop_max: int = 30
    """A game starts after 1 to this many no-ops, at random. 0: at once."""

    fire_on_reset: bool = True
    """Press FIRE at the start, in games that wait for it."""

    life_loss: bool = False
    """End an episode where a life is lost; the next one goes on in the same game. For training only."""

    clip_rewards: bool = True
    """Clip each step's reward to -1 .. 1. Unclipped, the return is the game's score."""

    repeat_action_probability: float = 0.0
    """Sticky actions: how likely a frame repeats the action before, 0.25 after Machado et al. (2018)."""


@register_env(UID)
def make_atari(config: AtariConfig, num_envs: int) -> BaseEnv:
    """Build the environments: image `image`, the game's minimal set of actions.

    Raises:
        EnvError: there is no such game, or a number is out of range.
    """
    import ale_py
    from gymnasium import register_envs

    from plugrl_env_client.envs.gym_adapter.making import known_ids, make_gym_env, require_at_least, require_known

    for flag in ("frame_skip", "frame_stack", "screen_size"):
        require_at_least(f"--env.{flag.replace('_', '-')}", getattr(config, flag), 1)
    require_at_least("--env.noop-max", config.noop_max, 0)
    if not 0 <= config.repeat_action_probability <= 1:
        raise EnvError(f"--env.repeat-action-probability {config.repeat_action_probability}: expected 0 to 1")
    register_envs(ale_py)
    games = [name for name in known_ids(within=("ale_py.",)) if name.startswith("ALE/")]
    name = config.name if config.name.startswith("ALE/") else f"ALE/{config.name}-v5"
    require_known(name, games, UID)
    if "obs_type" in parse_kwargs(config.kwargs):
        raise EnvError(
            "--env.kwargs obs_type: the preprocessing takes the screen itself; use --env.grayscale, or gym-v1"
        )
    if "max_episode_steps" in parse_kwargs(config.kwargs):
        raise EnvError("--env.kwargs max_episode_steps would count frames, no-ops too; use --runner.max-episode-steps")
    own = config.vectorization == "own"
    if own and config.grayscale and config.frame_stack > _MOST_OWN_STACK:
        raise EnvError(
            f"--env.frame-stack {config.frame_stack}: at most {_MOST_OWN_STACK} with --env.vectorization own"
        )
    defaults = _own_arguments(config) if own else _arguments(config)
    wrap = None if own else functools.partial(preprocess, config=config)
    env = make_gym_env(name, num_envs, flags=config, defaults=defaults, wrap=wrap)
    env.max_episode_steps = env.max_episode_steps or MAX_FRAMES // config.frame_skip
    return env


def preprocess(env: Any, config: AtariConfig) -> Any:
    """Put the preprocessing around one game that skips no frames itself, in the order of the literature."""
    from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation

    from plugrl_env_client.envs.gym_families.atari_wrappers import FireOnReset, LifeLoss

    env = AtariPreprocessing(
        env,
        noop_max=config.noop_max,
        frame_skip=config.frame_skip,
        screen_size=config.screen_size,
        grayscale_obs=config.grayscale,
        grayscale_newaxis=config.grayscale,
    )
    if config.life_loss:
        env = LifeLoss(env)
    if config.fire_on_reset and "FIRE" in env.unwrapped.get_action_meanings():
        env = FireOnReset(env)
    if config.clip_rewards:
        env = ClipReward(env, -1.0, 1.0)
    return FrameStackObservation(env, config.frame_stack) if config.frame_stack > 1 else env


def _arguments(config: AtariConfig) -> dict[str, Any]:
    return {
        "frameskip": 1,  # AtariPreprocessing skips
        "repeat_action_probability": config.repeat_action_probability,
        "full_action_space": False,
        "max_num_frames_per_episode": MAX_FRAMES,
    }


def _own_arguments(config: AtariConfig) -> dict[str, Any]:
    return {
        **_arguments(config),
        "autoreset_mode": "SameStep",  # no step is lost on a reset
        "frameskip": config.frame_skip,
        "stack_num": config.frame_stack,
        "img_height": config.screen_size,
        "img_width": config.screen_size,
        "grayscale": config.grayscale,
        "noop_max": config.noop_max,
        "use_fire_reset": config.fire_on_reset,
        "episodic_life": config.life_loss,
        "reward_clipping": config.clip_rewards,
    }
