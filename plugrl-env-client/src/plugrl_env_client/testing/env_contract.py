"""The contract of an environment as a pytest class."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.errors import ProtocolError
from plugrl_protocol.messages import Feedback, message_from_wire
from plugrl_protocol.spaces import BoxSpace, Declaration, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace

from plugrl_env_client.envs.base_env import BaseEnv, Observation, Step
from plugrl_env_client.testing.comparing import arrays, copied, difference, expect, layout, row_difference, skip
from plugrl_env_client.testing.driving import Drive, corners, first_difference

_SPACES = (BoxSpace, DiscreteSpace, MultiDiscreteSpace, MultiBinarySpace)
_OTHER_SEED = 1000


class EnvContract:
    """Inherit it, say how your environment is made, and run pytest.

        class TestMine(EnvContract):
            def make_env(self, num_envs):
                return MyEnv(MyConfig(), num_envs)

    Every method is one clause of `BaseEnv` and a test of its own. Where episodes are long, make them short in
    `make_env`: checks of what happens at the end of one are skipped when none ends within `steps`.

    Attributes:
        num_envs: How many environments are run together.
        seed: Of the first reset; actions are drawn from it too.
        steps: Steps within which an episode must end.
        deterministic: Whether the same seed and the same actions give the same rollout. A robot has no seed.
        random_starts: Whether another seed gives another rollout, with the same actions.
        observations_change: Whether an episode's end looks different from its beginning.
    """

    num_envs: ClassVar[int] = 3
    seed: ClassVar[int] = 7
    steps: ClassVar[int] = 500
    deterministic: ClassVar[bool] = True
    random_starts: ClassVar[bool] = True
    observations_change: ClassVar[bool] = True

    def make_env(self, num_envs: int) -> BaseEnv:
        """Return `num_envs` environments. Called often; what it returns is closed by the contract."""
        raise TypeError(f"{type(self).__name__} lacks make_env(self, num_envs): return your {num_envs} environments.")

    # What it says about itself -----------------------------------------------------------------------------------

    def test_it_describes_itself(self) -> None:
        """`num_envs`, `env_id`, `action_space`, `max_episode_steps` and `reward_threshold` can be declared."""
        with self._env() as env:
            expect(env.num_envs == self.num_envs, f"num_envs is {env.num_envs}, {self.num_envs} were asked for.")
            expect(isinstance(env.env_id, str) and env.env_id, f"env_id is {env.env_id!r}, expected a name.")
            space = env.action_space
            expect(
                space is None or isinstance(space, _SPACES), f"action_space is {space!r}, expected a space, or None."
            )
            limit = env.max_episode_steps
            expect(
                limit is None or (isinstance(limit, int) and limit >= 1),
                f"max_episode_steps is {limit!r}, expected a number of steps, or None.",
            )
            reward = env.reward_threshold
            expect(
                reward is None or np.isfinite(reward), f"reward_threshold is {reward!r}, expected a number, or None."
            )
            if space is not None:
                told = Declaration(space, env=env.env_id, num_envs=env.num_envs, max_episode_steps=limit)
                back = Declaration.from_wire(decode(encode(told.to_wire())), "spaces")
                expect(back == told, f"the declaration arrives as {back}, was sent as {told}.")

    # Shapes ------------------------------------------------------------------------------------------------------

    def test_every_observation_has_a_row_for_each_env(self) -> None:
        """`reset`, `step` and `reset_indices` return n rows, whoever was reset."""
        with self._driven() as drive:
            for where, shown in self._everything_shown(drive):
                expect(len(shown) == self.num_envs, f"{where} returned {len(shown)} rows, there are {self.num_envs}.")

    def test_shapes_and_dtypes_never_change(self) -> None:
        """Names, row shapes and dtypes are the same after every call, and for any number of environments."""
        with self._env(1) as alone:
            expected = layout(alone.reset(self.seed))
        with self._driven() as drive:
            for where, shown in self._everything_shown(drive):
                found = layout(shown)
                for name in {**expected, **found}:
                    here, first = found.get(name), expected.get(name)
                    expect(here == first, f"{where} returned {name} as {here}, one env's first reset as {first}.")

    def test_observations_are_finite(self) -> None:
        """No state is NaN or infinite: a server discards such rows."""
        with self._driven() as drive:
            for where, shown in self._everything_shown(drive):
                for name, array in arrays(shown).items():
                    expect(
                        array.dtype.kind != "f" or np.isfinite(array).all(), f"{where} returned NaN or inf in {name}."
                    )

    def test_rewards_and_flags_are_arrays_of_n(self) -> None:
        """Rewards are finite float[n]; `terminated` and `truncated` are bool[n]."""
        with self._env() as env:
            drive = Drive(env, self.seed)
            for _ in range(self._some()):
                told = env.step(drive.actions())
                for name in ("rewards", "terminated", "truncated"):
                    kind, what = ("f", "float") if name == "rewards" else ("b", "bool")
                    array = getattr(told, name)
                    expect(isinstance(array, np.ndarray), f"{name} is a {type(array).__name__}, expected an array.")
                    expect(
                        array.shape == (self.num_envs,) and array.dtype.kind == kind,
                        f"{name} is {array.dtype}{list(array.shape)}, expected {what}[{self.num_envs}].",
                    )
                expect(np.isfinite(told.rewards).all(), f"rewards are {told.rewards}: NaN or infinite.")
                ended = np.flatnonzero(told.terminated | told.truncated)
                if len(ended) and not env.resets_in_step:
                    env.reset_indices(ended)

    def test_infos_can_be_sent(self) -> None:
        """Infos are arrays whose leading axis is n; `success` is bool[n]; all of it survives the wire."""
        with self._driven() as drive:
            drive.until_ended(self.steps)
            for moment in drive.moments:
                for name, value in moment.step.infos.items():
                    kind = type(value).__name__
                    expect(isinstance(value, np.ndarray), f"infos[{name!r}] is a {kind}, expected an array.")
                    expect(
                        value.ndim > 0 and len(value) == self.num_envs,
                        f"infos[{name!r}] has shape {list(value.shape)}, expected {self.num_envs} rows.",
                    )
                success = moment.step.infos.get("success")
                flags = success is None or (success.dtype.kind == "b" and success.ndim == 1)
                expect(flags, f"infos['success'] is not bool[{self.num_envs}].")
                expect("episode" not in moment.step.infos, "infos['episode'] is the client's own: call it otherwise.")
                self._through_the_wire(moment.step)

    # Seeds -------------------------------------------------------------------------------------------------------

    def test_the_same_seed_gives_the_same_rollout(self) -> None:
        """Two environments, and one that is reset again, do the same after `reset(seed)`."""
        self._require_determinism()
        with self._driven() as drive, self._env() as other:
            drive.steps(self._some())
            for what, env in (("another env", other), ("the same env", drive.env)):
                found = first_difference(drive, Drive(env, self.seed), self._some())
                expect(found is None, f"after reset({self.seed}) again, {what} does otherwise: {found}.")

    def test_env_i_is_seeded_with_seed_plus_i(self) -> None:
        """Row i of `reset(seed)` is what a single environment shows after `reset(seed + i)`."""
        self._require_determinism()
        with self._driven() as drive:
            drive.steps(self._few())
            for row in range(self.num_envs):
                with self._env(1) as alone:
                    single = Drive(alone, self.seed + row)
                    pairs = [(drive.first, single.first)]
                    for moment in drive.moments:
                        if len(moment.ended) or len(moment.resetting):
                            break
                        pairs.append((moment.step.observation, single.step().step.observation))
                    for time, (shown, own) in enumerate(pairs):
                        found = row_difference(shown, row, own, 0)
                        expect(
                            found is None,
                            f"env {row} of {self.num_envs} after reset({self.seed}) and {time} steps is unlike one env "
                            f"after reset({self.seed + row}): {found}.",
                        )

    def test_other_seeds_give_other_rollouts(self) -> None:
        """Where anything is random, it depends on the seed."""
        self._require_determinism()
        if not self.random_starts:
            skip("nothing is random in it")
        with self._driven() as drive, self._env() as other:
            drive.steps(self._some())
            found = first_difference(drive, Drive(other, self.seed + _OTHER_SEED, self.seed), self._some())
        expect(found, "two seeds give the same rollout: reset(seed) ignores it. Should it: random_starts = False.")

    # Episodes ----------------------------------------------------------------------------------------------------

    def test_a_done_row_shows_the_final_observation(self) -> None:
        """The observation on a done step is that step's own, never the next episode's first one (SPEC 5.4).

        Found where an episode begins in the same way every time, where the start depends on nothing but the resets
        before it, and where `reset_indices` shows what was shown already.
        """
        if not self.observations_change:
            skip("its observations do not tell an episode's end from a beginning")
        with self._driven() as drive, self._env() as twin:
            moment = drive.until_ended(self.steps)
            if moment is None:
                skip(f"no episode ends within {self.steps} steps")
            firsts = [drive.first, self._second_episode(twin)]
            firsts.append(drive.step().step.observation if moment.after is None else moment.after)
            shown = moment.step.observation
            as_first = [
                row
                for row in moment.ended.tolist()
                if any(row_difference(shown, row, first, row) is None for first in firsts)
            ]
        expect(
            len(as_first) < len(moment.ended),
            f"on the step that ends their episode, envs {as_first} show a first observation: step() must return the "
            f"final one, and reset_indices() the next episode's first. Should both look alike: "
            f"observations_change = False.",
        )

    def test_max_episode_steps_is_kept(self) -> None:
        """No episode is longer than `max_episode_steps`, and one that gets there is over: truncated or terminated."""
        with self._driven() as drive:
            limit = drive.env.max_episode_steps
            if limit is None or limit > self.steps:
                skip(f"it declares no limit within {self.steps} steps")
            lengths = np.zeros(self.num_envs, np.int64)
            for moment in drive.steps(limit + 1):
                lengths += 1
                lengths[moment.resetting] = 0
                over = np.flatnonzero(lengths >= limit)
                expect(
                    np.isin(over, moment.ended).all(),
                    f"max_episode_steps is {limit}; after {lengths.max()} steps neither flag of envs "
                    f"{over[~np.isin(over, moment.ended)].tolist()} is set.",
                )
                lengths[moment.ended] = 0

    def test_reset_indices_leaves_the_others_alone(self) -> None:
        """The others show what they showed, and their episodes go on as if nothing had happened."""
        self._require_own_resets()
        with self._driven() as drive, self._driven() as twin:
            row, before = self._underway(drive)
            self._underway(twin)
            shown = copied(drive.env.reset_indices(np.array([row])))
            others = [other for other in range(self.num_envs) if other != row]
            found = difference(before.take(others), shown.take(others))
            expect(found is None, f"reset_indices([{row}]) changed what others show: {found}.")
            if self.deterministic:
                for _ in range(self._few()):
                    moment, untouched = drive.step(), twin.step()
                    found = difference(moment.step.observation.take(others), untouched.step.observation.take(others))
                    expect(found is None, f"reset_indices([{row}]) changed how others go on: {found}.")
                    if len(moment.ended) or len(untouched.ended):
                        break

    def test_reset_indices_begins_an_episode(self) -> None:
        """A row that was reset looks otherwise than before, and has a whole episode before it."""
        self._require_own_resets()
        with self._driven() as drive:
            row, before = self._underway(drive)
            after = copied(drive.env.reset_indices(np.array([row])))
            if self.observations_change:
                expect(row_difference(before, row, after, row), f"reset_indices([{row}]) changed nothing in that row.")
            limit = drive.env.max_episode_steps
            for time in range(1, (limit or 0) if (limit or 0) <= self.steps else 0):
                moment = drive.step()
                expect(
                    row not in moment.ended or moment.step.terminated[row],
                    f"an env that was reset is truncated {time} steps later, its limit is {limit}.",
                )
                if row in moment.ended:
                    break

    # Memory ------------------------------------------------------------------------------------------------------

    def test_actions_are_only_read(self) -> None:
        """`step` neither changes the actions nor looks at them again: the caller uses that memory for the next."""
        with self._driven() as drive, self._driven() as twin:
            for _ in range(self._few()):
                actions = drive.actions()
                given, kept = actions.copy(), actions.copy()
                told = drive.step(given)
                expect(np.array_equal(given, kept), "step() writes into the actions that it is given.")
                given[...] = corners(drive.env.action_space)[0]
                untouched = twin.step(kept)
                if self.deterministic:
                    found = difference(told.step.observation, untouched.step.observation)
                    expect(found is None, f"the env looks at an action again after step() has returned: {found}.")

    def test_environments_share_no_memory(self) -> None:
        """What one made environment shows is not changed by another one."""
        with self._env() as one, self._env() as other:
            shown = one.reset(self.seed)
            kept = copied(shown)
            Drive(other, self.seed + _OTHER_SEED).steps(self._few())
            found = difference(shown, kept)
        expect(found is None, f"stepping one env changes what another shows, they share a buffer: {found}.")

    def test_entries_share_no_memory(self) -> None:
        """Every entry and every row of an observation has memory of its own."""
        with self._env() as env:
            named = list(arrays(env.reset(self.seed)).items())
        for at, (name, array) in enumerate(named):
            repeats = any(stride == 0 and length > 1 for stride, length in zip(array.strides, array.shape, strict=True))
            expect(not repeats or name == "text", f"the rows of {name} share memory (broadcast?): copy them.")
            for other, second in named[at + 1 :]:
                expect(
                    not np.may_share_memory(array, second) or not np.shares_memory(array, second),
                    f"{name} and {other} share memory: a recorder could not tell them apart.",
                )

    # Actions and the end -----------------------------------------------------------------------------------------

    def test_it_takes_every_action_of_its_space(self) -> None:
        """The bounds of its space, or its first and last choice, can be stepped with."""
        with self._env() as env:
            for action in corners(env.action_space):
                env.reset(self.seed)
                told = env.step(np.stack([action] * self.num_envs))
                for name, array in arrays(told.observation).items():
                    finite = array.dtype.kind != "f" or bool(np.isfinite(array).all())
                    expect(finite, f"after the action {action.tolist()} {name} is NaN or infinite.")

    def test_close_can_be_called_twice(self) -> None:
        """`close` gives everything back; a second call has nothing to do."""
        env = self.make_env(self.num_envs)
        env.reset(self.seed)
        env.close()
        try:
            env.close()
        except Exception as err:
            expect(False, f"a second close() fails: {type(err).__name__}: {err}")

    # How the checks run ------------------------------------------------------------------------------------------

    @contextmanager
    def _env(self, num_envs: int | None = None) -> Iterator[BaseEnv]:
        env = self.make_env(self.num_envs if num_envs is None else num_envs)
        try:
            yield env
        finally:
            env.close()

    @contextmanager
    def _driven(self) -> Iterator[Drive]:
        with self._env() as env:
            yield Drive(env, self.seed)

    def _some(self) -> int:
        return min(30, self.steps)

    def _few(self) -> int:
        return min(5, self.steps)

    def _everything_shown(self, drive: Drive) -> list[tuple[str, Observation]]:
        drive.until_ended(self.steps)
        shown = [("reset", drive.first)]
        for moment in drive.moments:
            shown.append(("step", moment.step.observation))
            if moment.after is not None:
                shown.append(("reset_indices", moment.after))
        if not drive.env.resets_in_step:
            shown.append(("reset_indices", copied(drive.env.reset_indices(np.array([0])))))
        return shown

    def _underway(self, drive: Drive) -> tuple[int, Observation]:
        """Take a few steps; returns a row in the middle of an episode, and what is shown."""
        going_on = np.zeros(0, np.int64)
        while len(drive.moments) < self._few() or not len(going_on):
            if len(drive.moments) == self.steps:
                skip("no episode has a middle")
            moment = drive.step()
            going_on = np.setdiff1d(np.arange(self.num_envs), moment.ended)
        return int(going_on[-1]), moment.step.observation if moment.after is None else moment.after

    def _second_episode(self, env: BaseEnv) -> Observation:
        """First observations of the second episodes, where nothing but resets draws random numbers."""
        shown = env.reset(self.seed)
        return copied(shown if env.resets_in_step else env.reset_indices(np.arange(env.num_envs)))

    def _through_the_wire(self, step: Step) -> None:
        n = self.num_envs
        sent = Feedback(
            env_indices=np.arange(n),
            step_ids=np.zeros(n, np.int64),
            observation=step.observation,
            rewards=step.rewards.astype(np.float32),
            terminated=step.terminated,
            truncated=step.truncated,
            info=dict(step.infos),
        )
        try:
            back = message_from_wire(decode(encode(sent.to_wire())))
        except ProtocolError as err:
            expect(False, f"infos cannot be sent: {err}.")
        expect(isinstance(back, Feedback) and len(back.info_rows()) == n, "infos do not survive the wire.")

    def _require_determinism(self) -> None:
        if not self.deterministic:
            skip("it has no seed")

    def _require_own_resets(self) -> None:
        with self._env(1) as env:
            if env.resets_in_step:
                skip("it resets itself in its next step")
