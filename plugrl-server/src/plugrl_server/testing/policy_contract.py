"""The contract of a policy as a pytest class."""

import copy
import tempfile
from typing import Any, ClassVar

import numpy as np
from plugrl_protocol.spaces import ActionSpace, BoxSpace

from plugrl_server.common.checkpoint_manager import Checkpoint, CheckpointManager
from plugrl_server.learning import trees
from plugrl_server.policy.action_spaces import choices
from plugrl_server.testing.comparing import difference, expect, layout, row_counts, skip
from plugrl_server.testing.contract import Contract, changed, weights
from plugrl_server.testing.tiny_env import Observation

FAR = 100.0
"""Factor on the states for the checks of bounds: observations that nobody expected."""


class PolicyContract(Contract):
    """Inherit it, say how your policy is made, and run pytest.

        class TestMine(PolicyContract):
            def make_policy(self):
                return MyPolicy(self.sized(MyPolicyConfig(hidden_size=8)))

    `sized` fills the dimensions as the first client's declaration does. Every method is one clause and a test.

    Attributes:
        rows: Environments in a batch.
        has_deterministic_mode: Whether `deterministic = True` makes it act without noise.
        row_tolerance: How far an action alone may lie from the same one in a batch, in units of the action.
    """

    rows: ClassVar[int] = 5
    has_deterministic_mode: ClassVar[bool] = True
    row_tolerance: ClassVar[float] = 1e-4

    # Actions -----------------------------------------------------------------------------------------------------

    def test_actions_have_the_declared_shape_and_dtype(self) -> None:
        """Actions are an array [n, H, *action shape] of the space's kind of number, H being `action_horizon`."""
        policy = self.build()
        for n in (1, self.rows):
            action, _ = policy.get_action_and_runtime_state(self.observe(n))
            expect(isinstance(action, np.ndarray), f"actions must be a NumPy array, got {type(action).__name__}.")
            expected = (n, policy.action_horizon, *self.action_space.shape)
            expect(action.shape == expected, f"actions of shape {list(action.shape)}, expected {list(expected)}.")
            declared = self.action_space.dtype
            expect(
                np.can_cast(action.dtype, declared, "same_kind"), f"actions are {action.dtype}, expected {declared}."
            )

    def test_actions_are_finite_and_in_bounds(self) -> None:
        """However strange the observation, actions are numbers of the action space."""
        policy = self.build()
        for scale in (1.0, FAR):
            obs = self.observe(64)
            obs["states"] = {key: scale * state for key, state in obs["states"].items()}
            action, _ = policy.get_action_and_runtime_state(obs)
            expect(np.isfinite(np.asarray(action, np.float64)).all(), "an action is NaN or infinite.")
            expect(_inside(self.action_space, action), f"an action lies outside {self.action_space}.")

    def test_deterministic_actions_repeat(self) -> None:
        """With `deterministic = True` the same observation gets the same action."""
        policy, obs = self._deterministic(), self.observe(self.rows)
        first, second = (policy.get_action_and_runtime_state(obs)[0] for _ in range(2))
        expect(np.array_equal(first, second), "deterministic is true, and the same observation gets another action.")

    def test_a_row_alone_gets_the_action_it_gets_in_a_batch(self) -> None:
        """An environment's action does not depend on who shares its batch."""
        policy, obs = self._deterministic(), self.observe(self.rows)
        batch, _ = policy.get_action_and_runtime_state(obs)
        for i in range(self.rows):
            alone, _ = policy.get_action_and_runtime_state(trees.take(obs, slice(i, i + 1)))
            far = float(np.max(np.abs(np.asarray(alone[0], np.float64) - batch[i]))) if alone.size else 0.0
            expect(far <= self.row_tolerance, f"row {i} alone gets an action {far:.3g} away from the batch's.")

    def test_acting_changes_nothing_but_the_generators(self) -> None:
        """Acting leaves weights and observations as they are."""
        policy, obs = self.build(), self.observe(self.rows)
        before, seen = weights(policy), copy.deepcopy(obs)
        policy.get_action_and_runtime_state(obs)
        moved = changed(before, weights(policy))
        expect(not moved, f"acting changed the weights {sorted(moved)}.")
        found = difference(seen, obs)
        expect(found is None, f"acting changed the observation: {found}.")

    # States ------------------------------------------------------------------------------------------------------

    def test_every_leaf_of_the_runtime_state_has_a_row_per_environment(self) -> None:
        """The server takes runtime states apart by environment: every leaf has the leading axis n."""
        policy = self.build()
        for n in (1, self.rows):
            _, state = policy.get_action_and_runtime_state(self.observe(n))
            wrong = {path: rows for path, rows in row_counts(state).items() if rows != n}
            expect(not wrong, f"every leaf of the runtime state needs {n} rows, one an environment; found {wrong}.")

    def test_fake_observations_can_be_read(self) -> None:
        """`fake_obs(n)` is an observation of n environments with all that the policy reads."""
        policy = self.build()
        for n in (1, self.rows):
            obs = policy.fake_obs(n)
            wrong = {path: rows for path, rows in row_counts(obs).items() if rows != n}
            expect(not wrong, f"fake_obs({n}) needs {n} rows everywhere; found {wrong}.")
            problem = policy.check_observation(obs)
            expect(problem is None, f"the policy cannot read its own fake_obs({n}): {problem}")
            policy.get_action_and_runtime_state(obs)

    def test_fake_runtime_states_are_like_real_ones(self) -> None:
        """`fake_runtime_state(n)` has the structure, row shapes and dtypes of a real one, and draws no numbers."""
        policy = self.build()
        for n in (1, self.rows):
            before = policy.rng_state()
            fake = policy.fake_runtime_state(n)
            found = difference(before, policy.rng_state())
            expect(found is None, f"fake_runtime_state({n}) moves the policy's generator: {found}.")
            wrong = {path: rows for path, rows in row_counts(fake).items() if rows != n}
            expect(not wrong, f"fake_runtime_state({n}) needs {n} rows everywhere; found {wrong}.")
            found = difference(layout(fake), layout(policy.get_action_and_runtime_state(self.observe(n))[1]))
            expect(found is None, f"fake_runtime_state({n}) is not like a real one: {found}.")

    # Saving ------------------------------------------------------------------------------------------------------

    def test_the_random_state_is_restored(self) -> None:
        """`load_rng_state(rng_state())`, through a checkpoint, makes the policy draw the same actions again."""
        from plugrl_server.learning.rng import load_rng_state, rng_state

        policy = self.build()
        state = _through_disk(Checkpoint(step=0, meta=rng_state(policy))).meta
        first, _ = policy.get_action_and_runtime_state(self.observe(self.rows))
        load_rng_state(state, policy)
        second, _ = policy.get_action_and_runtime_state(self.observe(self.rows))
        expect(np.array_equal(first, second), "rng_state() does not hold every generator that actions are drawn from.")

    def test_the_weights_are_restored(self) -> None:
        """A `state_dict()`, through a checkpoint, makes another policy act the same."""
        policy, other = self.build(seed=0), self.build(seed=1)
        if not hasattr(policy, "state_dict"):
            skip("it is no torch module: there are no weights")
        _shake(policy)
        other.load_state_dict(_through_disk(Checkpoint(step=0, model=policy.state_dict())).model)
        moved = changed(weights(policy), weights(other))
        expect(not moved, f"load_state_dict() does not restore {sorted(moved)}.")
        generators, actions = policy.rng_state(), []
        for each in (policy, other):
            self.seed(0)
            each.load_rng_state(generators)
            actions.append(each.get_action_and_runtime_state(self.observe(self.rows))[0])
        found = difference(*actions)
        expect(found is None, f"with the same state_dict() it acts otherwise: {found}. Something is not in it.")

    # Observations ------------------------------------------------------------------------------------------------

    def test_check_observation_accepts_what_was_declared(self) -> None:
        """An observation of the declared names and widths has no problem."""
        problem = self.build().check_observation(self.observe(self.rows))
        expect(problem is None, f"check_observation refuses what was declared: {problem}")

    def test_check_observation_refuses_missing_keys(self) -> None:
        """An observation without a state or an image that the policy reads is refused, with a text."""
        policy = self.build()
        for kind, keys in (("states", policy.state_keys), ("images", policy.image_keys)):
            for key in keys or ():
                obs = self.observe(self.rows)
                del obs[kind][key]
                expect(
                    isinstance(policy.check_observation(obs), str),
                    f"check_observation accepts an observation without {kind}.{key}, which the policy reads.",
                )

    def test_check_observation_refuses_wrong_widths(self) -> None:
        """A policy of a fixed width refuses states of another, with a text: else inference would fail, for all."""
        policy = self.build()
        if getattr(policy.config, "obs_dim", None) is None:
            skip("it reads states of any width")
        for key in self.states if policy.state_keys is None else policy.state_keys:
            obs = self.observe(self.rows)
            obs["states"][key] = np.concatenate([obs["states"][key]] * 2, axis=1)
            expect(
                isinstance(policy.check_observation(obs), str),
                f"check_observation accepts states.{key} twice as wide as the policy was built for.",
            )

    # How the checks run ------------------------------------------------------------------------------------------

    def build(self, seed: int = 0) -> Any:
        """Return a new policy, made after seeding."""
        self.seed(seed)
        return self.make_policy()

    def observe(self, n: int) -> Observation:
        """Return the same random observation of n environments, every time."""
        return self.make_env(n, seed=3).obs

    def _deterministic(self) -> Any:
        if not self.has_deterministic_mode:
            skip("it has no deterministic mode")
        policy = self.build()
        policy.deterministic = True
        return policy


def _inside(space: ActionSpace, action: np.ndarray) -> bool:
    if isinstance(space, BoxSpace):
        return bool(np.all(action >= space.low) and np.all(action <= space.high))
    below = np.array(choices(space)).reshape(space.shape)
    return bool(np.all(action >= 0) and np.all(action < below))  # the server adds a Discrete space's `start`


def _shake(policy: Any) -> None:
    """Move every weight, so that no two policies are alike by their initialisation."""
    import torch

    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.1 * torch.randn(weight.shape).to(weight))


def _through_disk(checkpoint: Checkpoint) -> Checkpoint:
    with tempfile.TemporaryDirectory() as folder:
        manager = CheckpointManager(folder)
        manager.save(checkpoint)
        return manager.load()
