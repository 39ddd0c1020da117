"""Vector environments in the three autoreset modes, against transitions written by hand (field lesson 16)."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_adapter.vector_env import GymVectorEnv
from plugrl_env_client.envs.gym_flags import GymFlags


class Counter(gymnasium.Env):
    """Observes (its own number, the episode, the step); terminates after `length` steps."""

    observation_space = spaces.Box(-100, 100, (3,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, number, length):
        self.state = np.array([number, -1.0, 0.0])
        self.length = length

    def reset(self, *, seed=None, options=None):
        self.state = self.state + np.array([0, 1, 0])
        self.state[2] = 0
        return self.state, {}

    def step(self, action):
        self.state = self.state + np.array([0, 0, 1])
        over = bool(self.state[2] >= self.length)
        return self.state, 1.0, over, False, {"is_success": over, "step": int(self.state[2])}


def make(kind, mode, lengths=(2, 3)):
    makers = [lambda i=i, length=length: Counter(i, length) for i, length in enumerate(lengths)]
    return GymVectorEnv(kind(makers, autoreset_mode=mode), env_id="counter")


def rows(observation):
    return [tuple(int(value) for value in row) for row in observation.states["obs"]]


KINDS = pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])


@KINDS
@pytest.mark.parametrize("mode", [AutoresetMode.DISABLED, AutoresetMode.SAME_STEP])
def test_reset_at_will(kind, mode):
    """Both modes look alike from outside: the final observation first, the next episode's after `reset_indices`."""
    env = make(kind, mode)
    try:
        assert not env.resets_in_step
        assert rows(env.reset(0)) == [(0, 0, 0), (1, 0, 0)]
        assert rows(env.step(np.array([0, 0])).observation) == [(0, 0, 1), (1, 0, 1)]
        step = env.step(np.array([0, 0]))
        assert step.terminated.tolist() == [True, False]
        assert step.infos["success"].tolist() == [True, False]
        assert rows(step.observation) == [(0, 0, 2), (1, 0, 2)]
        assert rows(env.reset_indices(np.array([0]))) == [(0, 1, 0), (1, 0, 2)]
        step = env.step(np.array([0, 0]))
        assert step.terminated.tolist() == [False, True]
        assert rows(step.observation) == [(0, 1, 1), (1, 0, 3)]
        assert rows(env.reset_indices(np.array([1]))) == [(0, 1, 1), (1, 1, 0)]
    finally:
        env.close()


@KINDS
def test_next_step(kind):
    env = make(kind, AutoresetMode.NEXT_STEP)
    try:
        assert env.resets_in_step
        env.reset(0)
        env.step(np.array([0, 0]))
        step = env.step(np.array([0, 0]))
        assert step.terminated.tolist() == [True, False]
        assert rows(step.observation) == [(0, 0, 2), (1, 0, 2)]
        step = env.step(np.array([0, 0]))  # env 0 spends this step on its reset
        assert step.terminated.tolist() == [False, True]
        assert rows(step.observation) == [(0, 1, 0), (1, 0, 3)]
        assert step.rewards.tolist() == [0.0, 1.0]
    finally:
        env.close()


def test_a_vector_env_that_does_not_say_resets_in_its_next_step():
    class Silent(VectorEnv):
        num_envs = 2
        single_observation_space = Counter.observation_space
        single_action_space = Counter.action_space

        def __init__(self):
            self.metadata = {}

    assert GymVectorEnv(Silent(), env_id="silent").resets_in_step


def told(infos, mode=AutoresetMode.DISABLED, **flags):
    env = GymVectorEnv(make(SyncVectorEnv, mode)._env, env_id="counter", flags=GymFlags(**flags))
    return {key: value.tolist() for key, value in env._tell(infos, np.array([0])).items()}


def test_infos_are_batches_only_where_their_mask_says_so(caplog):
    """Lesson 18: `pair` has as many entries as there are envs, and is no batch."""
    infos = {"step": np.array([4, 5]), "_step": np.array([True, True]), "pair": np.array([1, 2])}
    assert told(infos, info_keys=("step", "pair")) == {"step": [4, 5]}
    assert "info entry 'pair' is not sent: counter does not say whose values these are (`_pair`)" in caplog.messages


def test_success_may_come_without_a_mask_but_only_as_one_yes_or_no_for_each_env():
    assert told({"success": np.array([True, False])}) == {"success": [True, False]}
    assert told({"success": np.array([True, False, True])}) == {}
    assert told({"success": np.array([1, 0])}) == {}
    assert told({"success": True}) == {}
    assert told({"goal": np.array([False, True])}, success_keys=("goal",)) == {"success": [False, True]}


def test_the_info_of_an_episodes_end_is_the_final_one():
    yes = np.array([True, False])
    infos = {
        "is_success": np.array([False, False]),  # of the next episode's reset
        "_is_success": np.array([True, True]),
        "final_info": {"is_success": yes, "_is_success": yes},
    }
    assert told(infos, AutoresetMode.SAME_STEP) == {"success": [True, False]}


class Own(VectorEnv):
    """A vector env of somebody else's: two envs that count; env 0's episodes have 2 steps, env 1's have 3."""

    num_envs = 2
    single_observation_space = spaces.Dict({"t": spaces.Box(-100, 100, (1,), np.float64)})
    single_action_space = spaces.Discrete(2)

    def __init__(self, mode, *, final=True, honours_mask=True):
        self.metadata = {} if mode is None else {"autoreset_mode": mode}
        self.final, self.honours_mask = final, honours_mask
        self.same_step = mode in (AutoresetMode.SAME_STEP, "SameStep")
        self.t = np.zeros((2, 1))

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask", np.ones(2, bool))
        self.t[mask if self.honours_mask else slice(None)] = 0
        return {"t": self.t}, {}

    def step(self, actions):
        self.t += 1
        done = self.t[:, 0] >= [2, 3]
        infos = {}
        if done.any() and self.same_step:
            if self.final:
                infos["final_obs"] = {"t": self.t.copy()}  # batched, not an array of objects
            self.t[done] = 0
        return {"t": self.t}, np.ones(2, np.int32), done, np.zeros(2, bool), infos


def own(*args, **kwargs):
    env = GymVectorEnv(Own(*args, **kwargs), env_id="own")
    env.reset(0)
    return env


def counts(observation):
    return observation.states["t"][:, 0].tolist()


STAY = np.zeros(2, np.int64)


def test_a_vector_env_of_somebody_elses_may_give_its_final_observations_as_a_batch():
    env = own("SameStep")  # and its mode as text
    env.step(STAY)
    assert counts(env.step(STAY).observation) == [2, 2]
    assert counts(env.reset_indices(np.array([0]))) == [0, 2]
    step = env.step(STAY)
    assert counts(step.observation) == [1, 3]
    assert step.rewards.dtype == np.float64  # whatever the env counts them in


def test_lost_final_observations_are_refused_with_the_way_out():
    env = own(AutoresetMode.SAME_STEP, final=False)
    env.step(STAY)
    with pytest.raises(
        EnvError, match=r"own resets .* gives no info\[\"final_obs\"\].*vectorization loop, sync or async"
    ):
        env.step(STAY)


def test_an_env_that_resets_in_another_step_than_it_says_is_refused():
    env = own(AutoresetMode.NEXT_STEP)
    env._env.same_step = True
    env.step(STAY)
    with pytest.raises(EnvError, match=r"autoreset mode is NEXT_STEP and gives info\[\"final_obs\"\]"):
        env.step(STAY)


@pytest.mark.parametrize("mode", [None, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_a_vector_env_in_the_style_of_gymnasium_0_2x_is_refused(mode):
    """It resets in the step that ends an episode, says so nowhere, and calls the final observation otherwise."""

    class Old(Own):
        def step(self, actions):
            observations, rewards, terminated, truncated, infos = super().step(actions)
            if "final_obs" in infos:
                final = [
                    {"t": row} if over else None for row, over in zip(infos["final_obs"]["t"], terminated, strict=True)
                ]
                infos = {"final_observation": np.array(final, object), "_final_observation": terminated}
            return observations, rewards, terminated, truncated, infos

    vector = Old(mode)
    vector.same_step = True
    env = GymVectorEnv(vector, env_id="old")
    env.reset(0)
    env.step(STAY)
    with pytest.raises(EnvError, match=r"gives info\[\"final_observation\"\].*vectorization loop, sync or async"):
        env.step(STAY)


def test_an_unknown_mode_is_refused():
    with pytest.raises(EnvError, match=r'own: metadata\["autoreset_mode"\] is \'Sometimes\', expected AutoresetMode'):
        own("Sometimes")


@pytest.mark.parametrize("mode", [AutoresetMode.DISABLED, AutoresetMode.SAME_STEP])
def test_an_episode_may_be_cut_short_where_rows_can_be_reset(mode):
    """`--runner.max-episode-steps`: the env itself has not noticed that an episode is over."""
    env = own(mode)
    env.step(STAY)
    assert counts(env.reset_indices(np.array([1]))) == [1, 0]
    assert counts(env.step(STAY).observation) == [2, 1]
    assert counts(env.reset_indices(np.array([0, 1]))) == [0, 0]


def test_a_reset_of_one_row_that_ends_the_episode_of_another_is_refused():
    env = own(AutoresetMode.DISABLED, honours_mask=False)
    env.step(STAY)
    with pytest.raises(EnvError, match="has reset others too, whose episodes are lost"):
        env.reset_indices(np.array([0]))
    assert counts(env.reset_indices(np.array([0, 1]))) == [0, 0]


def test_seeds_count_up_from_the_first():
    same = make(SyncVectorEnv, AutoresetMode.DISABLED)
    seen = []
    for env in same._env.envs:
        env.reset = lambda seed=None, options=None, env=env: (seen.append(seed), (env.state, {}))[1]
    same.reset(5)
    assert seen == [5, 6]


def test_what_is_not_of_the_space_is_refused_by_name():
    class OneForAll(VectorEnv):
        num_envs, single_observation_space, single_action_space = 2, spaces.Box(-1, 1, (3,)), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(3), {}

    with pytest.raises(EnvError, match=r"observes obs of shape \(3,\), its space promises \(2, 3\)"):
        GymVectorEnv(OneForAll(), env_id="one").reset(0)
