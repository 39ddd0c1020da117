"""The contract of a policy, free of torch."""

import abc
import dataclasses
from typing import Any, ClassVar

import numpy as np
from plugrl_protocol.spaces import ActionSpace

from plugrl_server.policy.state import PolicyRuntimeState, Tree


@dataclasses.dataclass
class BasePolicyConfig:
    """Base of every policy configuration.

    A policy that is sized by the environment says so by fields of these names, which a client's declaration fills:

    - `obs_dim: int | None = None`, the summed width of the states it reads;
    - `action_dim: int | None = None`, the numbers in one action (Box), or the choices of all its parts together;
    - `action_space: ActionSpace | None = None`, marked with `tyro.conf.Suppress`, since it is no flag;
    - `state_keys: tuple[str, ...] | None = None`, the states it reads; all of them, sorted, where it is None;
    - `image_keys: tuple[str, ...] | None = None`, the images it reads, likewise;
    - `image_shapes: dict[str, tuple[int, int, int]] | None = None`, height, width and channels of each; no flag either.

    While `obs_dim` or `action_dim` is None (or `action_space`, where there is no `action_dim`) the policy cannot be
    built. A policy that has `state_keys` but no `image_keys` reads no images.

    Attributes:
        action_kinds: Kinds of action space it can act in ("box", "discrete", "multi_discrete", "multi_binary").
        algorithms: For a policy that is not built in: the built-in algorithms it is written for.
        brings_weights: It needs no checkpoint to act as it should, so it can be evaluated without one.
    """

    action_kinds: ClassVar[tuple[str, ...]] = ("box", "discrete", "multi_discrete", "multi_binary")
    algorithms: ClassVar[tuple[str, ...]] = ()
    brings_weights: ClassVar[bool] = False

    def check(self) -> None:
        """Refuse a configuration that cannot work.

        Raises:
            ConfigError: The text names the flags and the numbers.
        """


@dataclasses.dataclass
class BaseTorchPolicyConfig(BasePolicyConfig):
    """Base of the configurations of torch policies."""

    device: str = "auto"
    """Torch device; "auto" is the first CUDA device, or the CPU where there is none."""


class BasePolicy(abc.ABC):
    """Turns observations of n environments into action chunks.

    An observation is `{"images": {name: u1[n, h, w, c]}, "states": {name: float[n, d]}, "text": <U[n]}`.

    Attributes:
        config: The configuration it was built from.
        action_horizon: H, the number of actions in a chunk; 0 while only its first answer will tell.
        action_dim: Numbers in one action, None when unknown.
        state_keys: The states it reads; None for whatever comes (batched per equal key set).
        image_keys: The images it reads; None for whatever comes.
        deterministic: Act without noise (evaluation).
    """

    action_horizon: int = 1
    action_dim: int | None = None
    state_keys: tuple[str, ...] | None = None
    image_keys: tuple[str, ...] | None = None
    deterministic: bool = False

    def __init__(self, config: Any) -> None:
        self.config = config

    @abc.abstractmethod
    def get_action_and_runtime_state(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Choose a chunk for each of n environments.

        Returns:
            The actions [n, H, *action shape] as they go to the environments (finite, within bounds), and what the
            policy knows of them, a tree whose leaves have the leading axis n.
        """

    def fake_obs(self, n: int) -> dict[str, Any]:
        """Return an all-zero observation of n environments, for sizing buffers and warming up."""
        width = getattr(self.config, "obs_dim", None) or 1
        keys = self.state_keys or ("state",)
        states = {key: np.zeros((n, width if key == keys[0] else 0), np.float32) for key in keys}
        return {"images": {}, "states": states, "text": np.zeros(n, "<U1")}

    def fake_runtime_state(self, n: int) -> PolicyRuntimeState:
        """Return a runtime state of n environments with the shapes and dtypes of real ones."""
        state = self.rng_state()
        runtime_state = self.get_action_and_runtime_state(self.fake_obs(n))[1]
        self.load_rng_state(state)
        return runtime_state

    def adopt_action_space(self, action_space: ActionSpace) -> None:  # noqa: B027 - optional
        """Be told the declared action space, when the policy was built before a client declared it.

        Raises:
            ValueError: The policy as it was built cannot act there; the text names both sides.
        """

    def check_observation(self, obs: dict[str, Any]) -> str | None:
        """Return what is wrong with an observation for this policy, None when it can be read.

        The server asks before batching; the text closes the connection that sent the observation, not the run.
        """
        for kind, keys in (("states", self.state_keys), ("images", self.image_keys)):
            missing = [key for key in keys or () if key not in obs[kind]]
            if missing:
                there = ", ".join(sorted(obs[kind])) or "none"
                return f"observation.{kind} lacks {', '.join(missing)}, which this run's policy reads; sent: {there}"
        return None

    def weights_are_finite(self) -> bool:
        """Return whether no weight that learns is NaN or infinite; asked after learn steps, and before saving."""
        return True

    def rng_state(self) -> Tree:
        """Return the state of every random generator of the policy's own (a tree a checkpoint can hold), or None."""
        return None

    def load_rng_state(self, state: Tree) -> None:  # noqa: B027 - optional
        """Restore what `rng_state` returned."""
