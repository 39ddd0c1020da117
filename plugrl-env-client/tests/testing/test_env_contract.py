"""A sound environment keeps the contract; for every clause a broken one fails that clause, and no other."""

from unittest import SkipTest

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import BaseEnv, Observation, Step
from plugrl_env_client.testing import ContractBroken, EnvContract
from plugrl_protocol.spaces import BoxSpace

LIMIT = 12
BOUND = np.full(2, 3, np.float32)


class Walk(BaseEnv):
    """A random walk with an image and a text; it terminates far out, and is truncated after 12 steps."""

    env_id = "walk"
    max_episode_steps = LIMIT
    reward_threshold = 10.0

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.action_space = BoxSpace((2,), np.dtype(np.float32), -BOUND, BOUND)
        self.at, self.time = np.zeros((num_envs, 2)), np.zeros(num_envs, np.int64)
        self.eye = np.zeros((num_envs, 4, 4, 3), np.uint8)
        self.rngs = [np.random.default_rng() for _ in range(num_envs)]
        self.closed = False

    def reset(self, seed):
        if seed is not None:
            self.rngs = [np.random.default_rng(seed + row) for row in range(self.num_envs)]
        return self.reset_indices(np.arange(self.num_envs))

    def reset_indices(self, indices):
        for row in indices:
            self.at[row] = self.rngs[row].normal(size=2)
        self.time[indices] = 0
        return self.look()

    def step(self, actions):
        self.at += actions
        self.at += self.drift()
        self.time += 1
        far = np.abs(self.at).max(1) > 20
        late = (self.time >= LIMIT) & ~far
        return Step(self.look(), np.ones(self.num_envs), far, late, {"success": far, "time": self.time.copy()})

    def drift(self):
        return np.array([0.1 * rng.normal(size=2) for rng in self.rngs])

    def look(self):
        self.eye[...] = self.time[:, None, None, None]
        return Observation(
            {"eye": self.eye}, {"at": self.at, "time": self.time[:, None].astype(float)}, ["go"] * self.num_envs
        )

    def close(self):
        self.closed = True


class NamesNobody(Walk):
    env_id = ""


class ForgetsARowOnReset(Walk):
    """With an environment more than one, `reset_indices` returns the rows that were reset only."""

    def reset_indices(self, indices):
        shown = super().reset_indices(indices)
        return shown.take(indices) if 0 < len(indices) == 1 < self.num_envs and self.calm(indices) else shown

    def calm(self, indices):
        return self.time.max() == 0 or indices[0] == 0


class NarrowsInFlight(Walk):
    def step(self, actions):
        told = super().step(actions)
        states = {**told.observation.states, "time": told.observation.states["time"].astype(np.float32)}
        return told._replace(observation=Observation(told.observation.images, states, told.observation.text))


class RunsAway(Walk):
    """Speed is infinite on the last step."""

    def look(self):
        shown = super().look()
        speed = np.where(self.time[:, None] >= LIMIT - 1, np.inf, 0.0)
        return Observation(shown.images, {**shown.states, "speed": speed}, shown.text)


class RewardsAsAList(Walk):
    def step(self, actions):
        told = super().step(actions)
        return told._replace(rewards=[1.0] * self.num_envs)


class CountsRewards(Walk):
    def step(self, actions):
        return super().step(actions)._replace(rewards=np.ones(self.num_envs, np.int64))


class TellsOneForAll(Walk):
    def step(self, actions):
        told = super().step(actions)
        return told._replace(infos={**told.infos, "map": np.zeros(7)})


class TellsInfosAsAList(Walk):
    def step(self, actions):
        told = super().step(actions)
        return told._replace(infos={**told.infos, "k": [1] * self.num_envs})


class TellsObjects(Walk):
    def step(self, actions):
        told = super().step(actions)
        return told._replace(infos={**told.infos, "grip": np.array([None] * self.num_envs)})


class TellsSuccessInColumns(Walk):
    def step(self, actions):
        told = super().step(actions)
        return told._replace(infos={"success": told.terminated[:, None]})


class TellsSuccessInNumbers(Walk):
    def step(self, actions):
        told = super().step(actions)
        return told._replace(infos={"success": told.terminated.astype(float)})


class NamesItsEntryEpisode(Walk):
    def step(self, actions):
        told = super().step(actions)
        return told._replace(infos={"episode": np.zeros(self.num_envs)})


class ForgetsTheNoise(Walk):
    """The seed reaches the start, not the noise: that of step 20 is the process's own."""

    noise = np.random.default_rng()

    def step(self, actions):
        told = super().step(actions)
        self.total = getattr(self, "total", 0) + 1
        if self.total == 20:
            self.at += 1e-3 * self.noise.normal(size=self.at.shape)
        return told


class SeedsAllAlike(Walk):
    def reset(self, seed):
        self.rngs = [np.random.default_rng(seed) for _ in range(self.num_envs)]
        return self.reset_indices(np.arange(self.num_envs))


class IgnoresTheSeed(Walk):
    def reset(self, seed):
        return super().reset(7 if seed is None or seed >= 1000 else seed)


class ResetsInTheStep(Walk):
    """A done row shows the next episode; `reset_indices` after it has nothing to do."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.fresh = np.zeros(num_envs, bool)

    def step(self, actions):
        told = super().step(actions)
        ended = np.flatnonzero(told.terminated | told.truncated)
        self.fresh[:] = False
        self.fresh[ended] = True
        return told._replace(observation=super().reset_indices(ended))

    def reset_indices(self, indices):
        asked = indices[~self.fresh[indices]]
        self.fresh[indices] = False
        return super().reset_indices(asked)


class ResetsTwice(ResetsInTheStep):
    """A done row shows the next episode, and `reset_indices` begins the one after it; only resets draw numbers."""

    def drift(self):
        return 0.0

    def reset_indices(self, indices):
        return Walk.reset_indices(self, indices)


class NeverEnds(Walk):
    def step(self, actions):
        told = super().step(actions)
        return told._replace(truncated=told.truncated & (self.time > LIMIT + 2))


class ResetsEverybody(Walk):
    def reset_indices(self, indices):
        alone = len(indices) == 1 and self.time[indices[0]] < LIMIT
        return super().reset_indices(np.arange(self.num_envs) if alone else indices)


class DrawsFromOneGenerator(Walk):
    """All noise comes from env 0's generator, which a reset of any env moves on."""

    def reset_indices(self, indices):
        shown = super().reset_indices(indices)
        if len(indices) < self.num_envs and (self.time[indices] == 0).all():
            self.rngs[0].normal()
        return shown


class ResetsNothing(Walk):
    def reset_indices(self, indices):
        midway = len(indices) == 1 and 0 < self.time[indices[0]] < LIMIT
        return self.look() if midway else super().reset_indices(indices)


class KeepsTheClock(Walk):
    """A reset in the middle of an episode forgets the step count."""

    def reset_indices(self, indices):
        clock = self.time[indices] % LIMIT if len(indices) < self.num_envs else 0
        super().reset_indices(indices)
        self.time[indices] = clock
        return self.look()


class ScalesInPlace(Walk):
    def step(self, actions):
        told = super().step(actions)
        actions *= 0.5
        return told


class ActsLate(Walk):
    """Looks at the actions of the step before again."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.before = None

    def reset(self, seed):
        self.before = None
        return super().reset(seed)

    def step(self, actions):
        if self.before is not None:
            self.at += 0.1 * self.before
        self.before = actions
        return super().step(actions)


class SharesABuffer(Walk):
    shared = np.zeros((3, 1))

    def look(self):
        shown = super().look()
        self.shared[: self.num_envs] = self.time[:, None]
        return Observation(shown.images, {**shown.states, "clock": self.shared[: self.num_envs]}, shown.text)


class ShowsOneRowToAll(Walk):
    def look(self):
        shown = super().look()
        goal = np.broadcast_to(np.ones(2), (self.num_envs, 2))
        return Observation(shown.images, {**shown.states, "goal": goal}, shown.text)


class ShowsTheSameTwice(Walk):
    def look(self):
        shown = super().look()
        return Observation({"eye": self.eye, "hand": self.eye[:, :2]}, shown.states, shown.text)


class FearsItsBounds(Walk):
    def step(self, actions):
        told = super().step(actions)
        if (np.abs(actions) == BOUND).all():
            told.observation.states["at"][...] = np.nan
        return told


class ClosesOnce(Walk):
    def close(self):
        if self.closed:
            raise RuntimeError("already closed")
        self.closed = True


BROKEN = {
    NamesNobody: "it_describes_itself",
    ForgetsARowOnReset: "every_observation_has_a_row_for_each_env",
    NarrowsInFlight: "shapes_and_dtypes_never_change",
    RunsAway: "observations_are_finite",
    RewardsAsAList: "rewards_and_flags_are_arrays_of_n",
    CountsRewards: "rewards_and_flags_are_arrays_of_n",
    TellsOneForAll: "infos_can_be_sent",
    TellsInfosAsAList: "infos_can_be_sent",
    TellsObjects: "infos_can_be_sent",
    TellsSuccessInNumbers: "infos_can_be_sent",
    TellsSuccessInColumns: "infos_can_be_sent",
    NamesItsEntryEpisode: "infos_can_be_sent",
    ForgetsTheNoise: "the_same_seed_gives_the_same_rollout",
    SeedsAllAlike: "env_i_is_seeded_with_seed_plus_i",
    IgnoresTheSeed: "other_seeds_give_other_rollouts",
    ResetsInTheStep: "a_done_row_shows_the_final_observation",
    ResetsTwice: "a_done_row_shows_the_final_observation",
    NeverEnds: "max_episode_steps_is_kept",
    ResetsEverybody: "reset_indices_leaves_the_others_alone",
    DrawsFromOneGenerator: "reset_indices_leaves_the_others_alone",
    ResetsNothing: "reset_indices_begins_an_episode",
    KeepsTheClock: "reset_indices_begins_an_episode",
    ScalesInPlace: "actions_are_only_read",
    ActsLate: "actions_are_only_read",
    SharesABuffer: "environments_share_no_memory",
    ShowsOneRowToAll: "entries_share_no_memory",
    ShowsTheSameTwice: "entries_share_no_memory",
    FearsItsBounds: "it_takes_every_action_of_its_space",
    ClosesOnce: "close_can_be_called_twice",
}
CLAUSES = [name.removeprefix("test_") for name in dir(EnvContract) if name.startswith("test_")]


class TestWalk(EnvContract):
    def make_env(self, num_envs):
        return Walk(num_envs)


def complaints(make, **attributes):
    """What each clause that is broken says."""
    contract = type("Checked", (EnvContract,), {"make_env": lambda _, num_envs: make(num_envs), **attributes})()
    said = {}
    for clause in CLAUSES:
        try:
            getattr(contract, f"test_{clause}")()
        except ContractBroken as err:
            said[clause] = str(err)
        except SkipTest:
            continue
    return said


def broken_clauses(make, **attributes):
    return list(complaints(make, **attributes))


@pytest.mark.parametrize(("env", "clause"), BROKEN.items(), ids=[env.__name__ for env in BROKEN])
def test_a_broken_env_fails_its_clause_and_no_other(env, clause):
    assert broken_clauses(env) == [clause]


def test_there_is_a_broken_env_for_every_clause():
    assert set(BROKEN.values()) == set(CLAUSES)


@pytest.mark.parametrize(
    ("attribute", "env"),
    [("deterministic", ForgetsTheNoise), ("random_starts", IgnoresTheSeed), ("observations_change", ResetsInTheStep)],
)
def test_a_clause_can_be_left_out_on_purpose(attribute, env):
    assert broken_clauses(env, **{attribute: False}) == []


def puts(entry, value):
    """An env that puts something into its observations after they were checked where they were made."""

    class Puts(Walk):
        def look(self):
            shown = super().look()
            (shown.images if entry == "eye" else shown.states)[entry] = value(self.num_envs)
            return shown

    return Puts


class ShowsAMap(Walk):
    def look(self):
        return {"at": self.at}


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (puts("at", lambda n: [[0.0, 0.0]] * n), "observation.states.at: expected float[{n},d], got list"),
        (puts("at", np.zeros), "observation.states.at: expected float[{n},d], got float[{n}]"),
        (
            puts("eye", lambda n: np.zeros((n, 4, 4, 3))),
            "observation.images.eye: expected uint8[{n},h,w,c], got float64",
        ),
        (ShowsAMap, "observation: expected an Observation, got map"),
    ],
    ids=["list", "flat", "float-image", "map"],
)
def test_every_clause_that_looks_at_an_observation_names_the_entry_that_is_none(env, says):
    said = complaints(env)
    assert {"every_observation_has_a_row_for_each_env", "shapes_and_dtypes_never_change"} <= set(said)
    texts = [f"what an env shows cannot be sent: {says.format(n=n)}" for n in (1, 3)]
    assert [told for told in said.values() if not told.startswith(tuple(texts))] == []


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (NarrowsInFlight, "step returned states.time as float32[1], one env's first reset as float64[1]."),
        (TellsInfosAsAList, "infos['k'] is a list, expected an array."),
        (TellsObjects, "infos cannot be sent: feedback.data.info.grip: dtype: expected"),
    ],
)
def test_the_key_is_named(env, says):
    (told,) = complaints(env).values()
    assert told.startswith(says)


def test_a_wrong_number_of_envs_is_told():
    contract = type("Checked", (EnvContract,), {"make_env": lambda _, num_envs: Walk(num_envs + 1)})()
    with pytest.raises(ContractBroken, match="num_envs is 4, 3 were asked for"):
        contract.test_it_describes_itself()


def test_a_contract_without_an_env_says_what_is_missing():
    with pytest.raises(TypeError, match=r"lacks make_env\(self, num_envs\)"):
        EnvContract().test_it_describes_itself()


def test_every_env_is_closed():
    made = []

    def make(num_envs):
        made.append(Walk(num_envs))
        return made[-1]

    assert broken_clauses(make) == []
    assert made
    assert all(env.closed for env in made)
