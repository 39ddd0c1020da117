"""What both contracts share: the spaces that the thing under test is made for, and seeds."""

from typing import Any, ClassVar

import numpy as np
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import ActionSpace, BoxSpace, Declaration

from plugrl_server import assembly
from plugrl_server.assembly import Selection
from plugrl_server.policy.action_spaces import POLICY_FOR_KIND
from plugrl_server.policy.registration import list_policies, make_policy
from plugrl_server.testing.tiny_env import TinyEnv


class Contract:
    """The environment side of a contract; override what yours needs otherwise.

    Attributes:
        action_space: What actions look like: two numbers between -1 and 1.
        states: Widths of the states by name: one of three numbers.
        images: [height, width, channels] of the images by name: none.
        num_envs: Environments in one message; three, which divides few buffer sizes.
    """

    action_space: ClassVar[ActionSpace] = BoxSpace((2,), np.dtype("<f4"), np.full(2, -1, "<f4"), np.full(2, 1, "<f4"))
    states: ClassVar[dict[str, int]] = {"obs": 3}
    images: ClassVar[dict[str, tuple[int, int, int]]] = {}
    num_envs: ClassVar[int] = 3

    def make_policy(self) -> Any:
        """Return the policy: by default a small built-in one for the action space."""
        uid = POLICY_FOR_KIND[self.action_space.kind]
        variants = list_policies()[uid]
        return make_policy(uid, self.sized(variants["default"](device="cpu", hidden_sizes=(8,))))

    def make_env(self, num_envs: int | None = None, *, seed: int = 0, length: int | None = None) -> TinyEnv:
        """Return the environment that the thing under test is driven in."""
        count = self.num_envs if num_envs is None else num_envs
        return TinyEnv(self.action_space, self.states, self.images, num_envs=count, seed=seed, length=length)

    def sized(self, config: Any) -> Any:
        """Return a policy configuration with its dimensions filled, as the first client's declaration does it."""
        obs = self.make_env(1).obs
        selection = Selection("policy", "default", config, "algorithm", "default", None)
        filled = assembly.with_declaration(selection, Declaration(self.action_space), Observation(**obs))
        return filled.policy_config

    def seed(self, seed: int) -> None:
        """Seed Python, NumPy and torch, before anything is made."""
        from plugrl_server.learning.rng import seed_everything

        seed_everything(seed)


def act_alike(one: Any, other: Any, obs: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the actions of two algorithms (or of anything with `policy` and `infer`) that draw the same numbers."""
    from plugrl_server.learning.rng import seed_everything

    state, actions = one.policy.rng_state(), []
    for each in (one, other):
        seed_everything(0)
        each.policy.load_rng_state(state)
        actions.append(np.asarray(each.infer(obs)[0]))
    return actions[0], actions[1]


def weights(policy: Any) -> dict[str, np.ndarray]:
    """Return a copy of a policy's named parameters, empty for one that is no torch module."""
    named = policy.named_parameters() if hasattr(policy, "named_parameters") else ()
    return {name: parameter.detach().float().cpu().numpy().copy() for name, parameter in named}


def changed(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> set[str]:
    """Return the names of the parameters that are no longer what they were."""
    return {name for name, value in after.items() if not np.array_equal(value, before[name], equal_nan=True)}
