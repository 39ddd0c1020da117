"""The kit's environment does what the wire promises of any."""

import itertools

import numpy as np
import pytest
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace
from plugrl_server.testing.tiny_env import TinyEnv

BOX = BoxSpace((2,), np.dtype("<f4"), np.full(2, -1, "<f4"), np.full(2, 1, "<f4"))


def play(env, steps, action=None):
    chosen = np.zeros((env.num_envs, 1, *env.action_space.shape)) if action is None else action
    return [(env.obs, env.started.copy(), env.step(chosen)) for _ in range(steps)]


def test_observations_have_the_shapes_asked_for():
    env = TinyEnv(BOX, {"a": 3, "b": 1}, {"eye": (4, 5, 3)}, num_envs=2)
    assert {key: state.shape for key, state in env.obs["states"].items()} == {"a": (2, 3), "b": (2, 1)}
    assert (env.obs["images"]["eye"].shape, env.obs["images"]["eye"].dtype) == ((2, 4, 5, 3), np.uint8)
    assert env.obs["text"].shape == (2,)


def test_episodes_are_ragged_and_end_in_both_ways():
    steps = play(TinyEnv(BOX, {"a": 1}, num_envs=3), 60)
    terminated, truncated = (sum(getattr(out, kind) for *_, out in steps) for kind in ("terminated", "truncated"))
    assert (terminated > 0).all()
    assert (truncated > 0).all()
    assert not any((out.terminated & out.truncated).any() for *_, out in steps)
    lengths = {out.info[i]["episode"]["l"] for *_, out in steps for i in range(3) if out.info[i]}
    assert lengths <= set(range(2, 10))
    assert len(lengths) > 3


def test_the_flags_of_a_frame_are_those_of_the_one_before():
    steps = play(TinyEnv(BOX, {"a": 1}, num_envs=3), 20)
    assert not steps[0][1].any()
    for (*_, before), (_, started, _) in itertools.pairwise(steps):
        assert started.tolist() == [before.terminated.tolist(), before.truncated.tolist()]


def test_an_ended_episode_shows_its_final_observation_and_goes_on_from_another():
    steps = play(TinyEnv(BOX, {"a": 1}, num_envs=3), 20)
    for (*_, before), (obs, _, _) in itertools.pairwise(steps):
        same = obs["states"]["a"][:, 0] == before.next_obs["states"]["a"][:, 0]
        assert same.tolist() == (~(before.terminated | before.truncated)).tolist()


def test_figures_are_the_sum_and_count_of_the_episode():
    rewards = []
    for *_, outcome in play(TinyEnv(BOX, {"a": 1}, num_envs=1), 30):
        rewards.append(outcome.reward[0])
        if outcome.info[0]:
            assert outcome.info[0]["episode"]["r"] == pytest.approx(sum(rewards), abs=1e-5)
            assert outcome.info[0]["episode"]["l"] == len(rewards)
            rewards.clear()


def test_a_fixed_length_ends_every_chunk():
    assert all((out.terminated | out.truncated).all() for *_, out in play(TinyEnv(BOX, {}, num_envs=2, length=1), 4))


def test_an_action_near_the_state_earns_more():
    def reward(far):
        env = TinyEnv(BOX, {"a": 1}, num_envs=1)
        return env.step((env.obs["states"]["a"] + far).reshape(1, 1, 1).repeat(2, 2)).reward[0]

    assert reward(0.0) == 0
    assert reward(0.1) > reward(0.5) > -1


def test_discrete_actions_and_wrong_shapes():
    env = TinyEnv(DiscreteSpace(3), {"a": 1}, num_envs=2)
    env.step(np.ones((2, 4), np.int64))
    with pytest.raises(ValueError, match=r"\[2, 4, 1\], expected \[2, H"):
        env.step(np.ones((2, 4, 1)))


def test_the_same_seed_shows_the_same():
    one, other = (play(TinyEnv(BOX, {"a": 2}, num_envs=2, seed=5), 10) for _ in range(2))
    assert all(np.array_equal(a[0]["states"]["a"], b[0]["states"]["a"]) for a, b in zip(one, other, strict=True))
