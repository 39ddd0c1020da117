"""The chunk plan against a naive plan that keeps one Python object per env."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_env_client.chunks import ChunkPlan


class NaiveEnv:
    """One env's bookkeeping, written as the protocol's text says it."""

    def __init__(self):
        self.state = "waiting"
        self.chunk, self.run = [], 0
        self.reward = self.ret = 0.0
        self.step_id = self.length = 0
        self.whole = True
        self.flags = (False, False)
        self.success = False

    def accept(self, chunk, replan):
        self.state, self.chunk, self.run, self.reward = "running", chunk[:replan] if replan else chunk, 0, 0.0

    def step(self, reward, terminated, truncated, success, limit):
        if self.state != "running":
            return
        self.run += 1
        self.reward += reward
        self.ret += reward
        self.length += 1
        truncated = truncated or (limit is not None and self.length >= limit and not terminated)
        self.flags = (terminated, truncated)
        if terminated or truncated:
            self.success = success
        if terminated or truncated or self.run == len(self.chunk):
            self.state = "owing"

    def sent(self):
        self.step_id += 1
        self.state = "ended" if any(self.flags) else "waiting"

    def restarted(self):
        self.state, self.flags, self.whole = "waiting", (False, False), True
        self.step_id = self.length = 0
        self.ret = 0.0

    def reconnected(self):
        self.state = "ended" if any(self.flags) else "waiting"
        self.step_id = 0
        self.whole = self.whole and self.length == 0


def who(envs, state):
    return [i for i, env in enumerate(envs) if env.state == state]


def check_owed(plan, envs, owing):
    owed = plan.owed(np.array(owing))
    assert len(owed.rewards) == len(owing)
    assert owed.step_ids.tolist() == [envs[i].step_id for i in owing]
    assert owed.rewards.dtype == np.float32
    assert owed.rewards.tolist() == [envs[i].reward for i in owing]
    assert owed.terminated.tolist() == [envs[i].flags[0] for i in owing]
    assert owed.truncated.tolist() == [envs[i].flags[1] for i in owing]
    done = [any(envs[i].flags) for i in owing]
    assert (owed.episode is not None) == any(done)
    if owed.episode is not None:
        assert {key: value.dtype.str for key, value in owed.episode.items()} == {
            "r": "<f4",
            "l": "<i8",
            "s": "|b1",
            "mask": "|b1",
        }
        assert owed.episode["r"].tolist() == [envs[i].ret for i in owing]
        assert owed.episode["l"].tolist() == [envs[i].length for i in owing]
        assert owed.episode["s"].tolist() == [d and envs[i].success for i, d in zip(owing, done, strict=True)]
        assert owed.episode["mask"].tolist() == [d and envs[i].whole for i, d in zip(owing, done, strict=True)]


def step_all(rng, plan, envs, limit):
    """One step of all envs; rewards are small whole numbers, so that sums are exact."""
    running = who(envs, "running")
    actions = plan.next_actions()
    for i in running:
        assert actions[i].tolist() == envs[i].chunk[envs[i].run].tolist()
    n = len(envs)
    rewards = np.array([rng.randint(-9, 9) for _ in range(n)], np.float64)
    terminated = np.array([rng.random() < 0.15 for _ in range(n)])
    truncated = np.array([rng.random() < 0.1 for _ in range(n)])
    success = np.array([rng.random() < 0.5 for _ in range(n)])
    for i, env in enumerate(envs):
        env.step(rewards[i], bool(terminated[i]), bool(truncated[i]), bool(success[i]), limit)
    ended = plan.record(rewards, terminated, truncated, success)
    over = [i for i in running if any(envs[i].flags)]
    if not over:
        assert ended is None
        return
    assert ended.envs.tolist() == over
    assert ended.returns.tolist() == [envs[i].ret for i in over]
    assert ended.lengths.tolist() == [envs[i].length for i in over]
    assert ended.successes.tolist() == [bool(success[i]) for i in over]


@given(
    seed=st.integers(0, 2**32),
    num_envs=st.integers(1, 6),
    replan=st.none() | st.integers(1, 5),
    limit=st.none() | st.integers(1, 9),
    resets_in_step=st.booleans(),
)
def test_the_plan_does_what_a_naive_one_does(seed, num_envs, replan, limit, resets_in_step):
    """Random lengths, horizons, ends and reconnects; envs reset at will or in the step after."""
    rng = random.Random(seed)
    plan = ChunkPlan(num_envs, replan_steps=replan, max_episode_steps=limit)
    envs = [NaiveEnv() for _ in range(num_envs)]
    for number in range(30):
        assert plan.waiting().tolist() == who(envs, "waiting")
        assert plan.owing().tolist() == who(envs, "owing")
        assert plan.ended().tolist() == who(envs, "ended")
        if rng.random() < 0.05:
            plan.reconnected()
            for env in envs:
                env.reconnected()
        elif who(envs, "owing"):
            report(plan, envs)
        elif who(envs, "ended") and not resets_in_step:
            restart(plan, envs, who(envs, "ended"))
        elif who(envs, "waiting"):
            accept(rng, plan, envs, replan, number)
        else:
            ended = who(envs, "ended")
            step_all(rng, plan, envs, limit)
            restart(plan, envs, ended)


def report(plan, envs):
    owing = who(envs, "owing")
    check_owed(plan, envs, owing)
    plan.sent(np.array(owing))
    for i in owing:
        envs[i].sent()


def restart(plan, envs, ended):
    if ended:
        plan.restarted(np.array(ended))
        for i in ended:
            envs[i].restarted()


def accept(rng, plan, envs, replan, number):
    waiting = who(envs, "waiting")
    size = rng.randint(1, 4) * len(waiting) * 2
    chunk = np.arange(1000 * number, 1000 * number + size).reshape(-1, len(waiting), 2)
    assert plan.step_ids(np.array(waiting)).tolist() == [envs[i].step_id for i in waiting]
    plan.accept(np.array(waiting), chunk)
    for row, i in enumerate(waiting):
        envs[i].accept(chunk[:, row], replan)


def run(plan, *steps):
    """Record steps of one env given as (reward, terminated, truncated)."""
    for reward, terminated, truncated in steps:
        plan.record(np.array([reward]), np.array([terminated]), np.array([truncated]))


def test_the_reward_of_a_chunk_is_the_sum_over_the_steps_run():
    plan = ChunkPlan(1)
    plan.accept(plan.waiting(), np.zeros((3, 1, 2)))
    run(plan, (1.0, False, False), (2.0, False, False))
    assert plan.owing().tolist() == []
    run(plan, (4.0, False, False))
    assert plan.owed(plan.owing()).rewards.tolist() == [7.0]


def test_an_episode_end_cuts_the_chunk_and_the_next_episode_counts_from_zero():
    plan = ChunkPlan(1)
    plan.accept(plan.waiting(), np.zeros((4, 1)))
    run(plan, (1.0, False, False), (2.0, True, False))
    owing = plan.owing()
    owed = plan.owed(owing)
    assert owed.episode is not None
    assert (owed.episode["r"].item(), owed.episode["l"].item(), owed.episode["mask"].item()) == (3.0, 2, True)
    plan.sent(owing)
    assert plan.ended().tolist() == [0]
    plan.restarted(plan.ended())
    assert plan.step_ids(plan.waiting()).tolist() == [0]


def test_step_ids_count_the_chunks_of_the_episode():
    plan = ChunkPlan(1)
    seen = []
    for _ in range(3):
        waiting = plan.waiting()
        seen.append(plan.step_ids(waiting).item())
        plan.accept(waiting, np.zeros((1, 1)))
        run(plan, (0.0, False, False))
        assert plan.owed(plan.owing()).step_ids.item() == seen[-1]
        plan.sent(plan.owing())
    assert seen == [0, 1, 2]


def test_lesson_12_an_episode_that_lived_through_a_reconnect_is_masked_and_the_next_one_is_not():
    plan = ChunkPlan(2)
    plan.accept(plan.waiting(), np.zeros((1, 2)))
    plan.record(np.ones(2), np.array([False, True]), np.zeros(2, bool))
    plan.reconnected()
    assert plan.owing().tolist() == []
    assert plan.waiting().tolist() == [0]
    assert plan.ended().tolist() == [1]
    plan.restarted(plan.ended())
    plan.accept(plan.waiting(), np.zeros((1, 2)))
    plan.record(np.ones(2), np.ones(2, bool), np.zeros(2, bool))
    owed = plan.owed(plan.owing())
    assert owed.rewards.tolist() == [1.0, 1.0]
    assert owed.episode["r"].tolist() == [2.0, 1.0]
    assert owed.episode["mask"].tolist() == [False, True]


def test_an_env_that_had_not_stepped_when_the_connection_broke_keeps_its_mask():
    plan = ChunkPlan(1)
    plan.accept(plan.waiting(), np.zeros((1, 1)))
    plan.reconnected()
    plan.accept(plan.waiting(), np.zeros((1, 1)))
    run(plan, (1.0, True, False))
    assert plan.owed(plan.owing()).episode["mask"].tolist() == [True]


@pytest.mark.parametrize(("reward", "expected"), [(4.0, False), (5.0, True)])
def test_a_reward_threshold_judges_success_where_the_env_does_not(reward, expected):
    plan = ChunkPlan(1, reward_threshold=5.0)
    plan.accept(plan.waiting(), np.zeros((1, 1)))
    run(plan, (reward, True, False))
    assert plan.owed(plan.owing()).episode["s"].tolist() == [expected]


def test_the_step_limit_truncates_and_does_not_overrule_a_termination():
    plan = ChunkPlan(2, max_episode_steps=1)
    plan.accept(plan.waiting(), np.zeros((4, 2)))
    plan.record(np.zeros(2), np.array([True, False]), np.zeros(2, bool))
    owed = plan.owed(plan.owing())
    assert owed.terminated.tolist() == [True, False]
    assert owed.truncated.tolist() == [False, True]


def test_replanning_runs_a_prefix_of_the_chunk():
    plan = ChunkPlan(1, replan_steps=2)
    plan.accept(plan.waiting(), np.arange(4.0).reshape(4, 1))
    assert plan.next_actions().tolist() == [0.0]
    run(plan, (0.0, False, False))
    assert plan.next_actions().tolist() == [1.0]
    run(plan, (0.0, False, False))
    assert plan.owing().tolist() == [0]


def test_a_cut_ends_the_chunks_that_have_run_a_step():
    plan = ChunkPlan(2)
    plan.accept(np.array([0]), np.zeros((4, 1)))
    plan.record(np.ones(2), np.zeros(2, bool), np.zeros(2, bool))
    plan.accept(np.array([1]), np.zeros((4, 1)))
    plan.cut()
    assert plan.owing().tolist() == [0]


def test_actions_of_another_shape_are_refused():
    plan = ChunkPlan(1)
    plan.accept(plan.waiting(), np.zeros((1, 1, 3)))
    with pytest.raises(ValueError, match=r"shape \(2,\) after actions of \(3,\)"):
        plan.accept(np.array([0]), np.zeros((1, 1, 2)))


def test_flags_are_copied_out_of_the_envs_own_buffers():
    """Lesson 15: an env may reuse its arrays in the next step."""
    plan = ChunkPlan(1)
    plan.accept(plan.waiting(), np.zeros((1, 1)))
    terminated = np.array([True])
    plan.record(np.ones(1), terminated, np.zeros(1, bool))
    terminated[0] = False
    assert plan.owed(plan.owing()).terminated.tolist() == [True]


def step(plan, reward, *, done=False):
    return plan.record(np.array([reward]), np.array([False]), np.array([done]))


def chunk_of(horizon):
    return np.arange(horizon, dtype=float).reshape(horizon, 1, 1)


def test_a_late_chunk_is_run_from_its_first_step_but_not_to_its_last():
    plan = ChunkPlan(1, replan_steps=4)
    plan.accept(plan.waiting(), chunk_of(5), late=2)
    assert plan.next_actions().item() == 0.0
    step(plan, 1.0)
    assert len(plan.owing()) == 0
    step(plan, 1.0)
    assert len(plan.owing()) == 1
    plan.sent(plan.owing())
    plan.accept(plan.waiting(), chunk_of(5), late=9)
    assert plan.next_actions().item() == 0.0
    step(plan, 1.0)
    assert len(plan.owing()) == 1, "one step at least"


def test_steps_that_stand_in_for_a_chunk_belong_to_it():
    plan = ChunkPlan(1)
    waiting = plan.waiting()
    for reward in (1.0, 2.0):
        plan.stand_in()
        step(plan, reward)
    plan.accept(waiting, chunk_of(2))
    step(plan, 4.0)
    step(plan, 8.0)
    assert plan.owed(plan.owing()).rewards.tolist() == [15.0]
    plan.sent(plan.owing())
    plan.accept(plan.waiting(), chunk_of(1))
    ended = step(plan, 16.0, done=True)
    assert plan.owed(plan.owing()).rewards.tolist() == [16.0]
    assert (ended.returns.tolist(), ended.lengths.tolist()) == ([31.0], [5])


def test_where_the_episode_ends_meanwhile_nothing_is_run_of_the_chunk():
    plan = ChunkPlan(1, max_episode_steps=2)
    waiting = plan.waiting()
    for _ in range(2):
        plan.stand_in()
        ended = step(plan, 1.0)
    assert ended.lengths.tolist() == [2]
    plan.accept(waiting, chunk_of(3))
    owed = plan.owed(plan.owing())
    assert (owed.rewards.tolist(), owed.truncated.tolist(), owed.episode["l"].tolist()) == ([2.0], [True], [2])
    plan.sent(plan.owing())
    assert len(plan.ended()) == 1


def test_what_stood_in_for_a_chunk_is_reported_where_the_run_ends_before_it_is_run():
    plan = ChunkPlan(1)
    waiting = plan.waiting()
    plan.stand_in()
    step(plan, 3.0)
    plan.accept(waiting, chunk_of(3))
    plan.cut()
    assert plan.owed(plan.owing()).rewards.tolist() == [3.0]


def test_a_reconnect_forgets_what_stood_in():
    plan = ChunkPlan(1)
    plan.stand_in()
    step(plan, 3.0)
    plan.reconnected()
    plan.accept(plan.waiting(), chunk_of(1))
    step(plan, 4.0)
    owed = plan.owed(plan.owing())
    assert (owed.rewards.tolist(), owed.step_ids.tolist()) == ([4.0], [0])
