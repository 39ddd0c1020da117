"""The contract of an environment family: a batch of environments that this package can step, reset and describe."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from plugrl_protocol.observation import Observation as Observation
from plugrl_protocol.spaces import ActionSpace


class EnvError(ValueError):
    """An environment cannot be made, or cannot do what it is asked: the text is for the user."""


@dataclasses.dataclass
class BaseEnvConfig:
    """Flags that every family has (`--env.*`)."""

    info_keys: tuple[str, ...] = ()
    """Entries of the env's info to send with each feedback, besides the episode metrics."""


def refuse_info_keys(config: BaseEnvConfig, uid: str) -> None:
    """For a family that has no info.

    Raises:
        EnvError: some of it is asked for.
    """
    if config.info_keys:
        raise EnvError(f"--env.info-keys {' '.join(config.info_keys)}: {uid} has no info to send")


class Step(NamedTuple):
    """What one step of all n environments returned.

    Attributes:
        observation: the n observations after the step; on a done row the step's own (final) observation, never the
            next episode's first one (SPEC 5.4).
        rewards: float[n].
        terminated: bool[n].
        truncated: bool[n].
        infos: arrays whose leading axis is n. `success` (bool[n]) is read on done rows, everything else is sent as it
            is. Empty when there is nothing to tell.
    """

    observation: Observation
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    infos: Mapping[str, np.ndarray]


class BaseEnv(abc.ABC):
    """n environments stepped together.

    An observation that `reset`, `step` and `reset_indices` return may live in buffers which the next of these calls
    overwrites: the caller sends or copies it before.

    Attributes:
        num_envs: n.
        env_id: the name that is declared to the server and shown to the user.
        action_space: the space of one env's action. None: any action is taken as the server sends it.
        max_episode_steps: the env's own limit, where it has one.
        reward_threshold: an episode that returns this much counts as a success where `Step.infos` does not say.
        resets_in_step: True for a vector env that resets a finished row in the step after (Gymnasium's
            `AutoresetMode.NEXT_STEP`) and cannot do it earlier; `reset_indices` is never called on it.
        reuse_from_bytes: size of all n observations from which it pays to send each only once (SPEC 10.1); smaller ones
            are sent again in the infer, which is quicker than to say which of them are known.
        captured_at: when what `reset`, `step` or `reset_indices` has just returned was captured, in seconds of
            `time.monotonic()`: a robot sets it to the time of its camera's image. None: when the call returned. Read
            in real time only (`--runner.fps`), where ages and action deadlines count from it.
    """

    num_envs: int
    env_id: str = "env"
    action_space: ActionSpace | None = None
    max_episode_steps: int | None = None
    reward_threshold: float | None = None
    resets_in_step: bool = False
    reuse_from_bytes: int = 16 * 2**10
    captured_at: float | None = None

    @abc.abstractmethod
    def reset(self, seed: int | None) -> Observation:
        """Start an episode in every env.

        Args:
            seed: env i is seeded with `seed + i`; None leaves seeding to the envs.

        Returns:
            The first observations of all n envs.
        """

    @abc.abstractmethod
    def step(self, actions: np.ndarray) -> Step:
        """Apply one action to every env.

        Args:
            actions: [n, *da], already checked and clipped for `action_space` and in its dtype.
        """

    @abc.abstractmethod
    def reset_indices(self, indices: np.ndarray) -> Observation:
        """Start a new episode in some envs.

        Args:
            indices: int64[k], the envs to reset.

        Returns:
            The current observations of all n envs: those just reset show their first one, the others their last.
        """

    def hold(self) -> None:  # noqa: B027 - a simulation simply waits
        """There will be no actions for a while: the connection was lost, or no action came in time.

        A robot holds a safe action here; the next `step` or `reset_indices` may be long in coming. May be called again
        meanwhile.
        """

    def close(self) -> None:  # noqa: B027 - most environments hold nothing that must be given back
        """Give back what the envs hold."""
