"""Whole runs in one thread, with the interleaving chosen by a seed.

Lesson 1: with any mix of malformed and honest clients, every stored transition equals what its own client sent.
"""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


class Honest:
    """A client of some envs whose every number tells client, env and step; it keeps its own book of transitions."""

    def __init__(self, run, number, rng):
        self.run, self.number, self.rng = run, number, rng
        self.envs = rng.sample(range(20), rng.randint(1, 5))
        self.clock = dict.fromkeys(self.envs, 0)
        self.connect()

    def connect(self):
        self.link = self.run.client()
        self.holding, self.seen, self.book = {}, 0, []

    def value(self, env):
        return self.number * 10_000 + env * 100 + self.clock[env]

    def move(self):
        if self.link.closed is not None:
            self.link.leave()
            self.connect()
        if len(self.link.actions) > self.seen:
            self.seen += 1
            self.report()
        elif self.link.session._connection.turn.value == "infer":
            self.ask()

    def ask(self):
        idle = [env for env in self.envs if env not in self.holding] or self.envs
        chosen = self.rng.sample(idle, self.rng.randint(1, len(idle)))
        self.asked = {env: self.value(env) for env in chosen}
        self.link.say(self.link.infer(list(self.asked), list(self.asked.values())))

    def report(self):
        answer = self.link.actions[-1]
        tickets = dict(zip(answer["env_ids"].tolist(), answer["action"][0, :, 0].tolist(), strict=True))
        self.holding.update({env: (self.asked[env], tickets[env]) for env in self.asked})
        done = self.rng.sample(sorted(self.holding), self.rng.randint(1, len(self.holding)))
        rows = []
        for env in done:
            self.clock[env] += 1
            value, ticket = self.holding.pop(env)
            rows.append((value, ticket, self.value(env)))
        self.book += rows
        self.link.say(self.link.feedback(done, [row[2] for row in rows], rewards=[row[2] / 7 for row in rows]))


class Liar:
    """A client that exchanges messages until it sends a broken one, and comes back."""

    def __init__(self, run, rng):
        self.run, self.rng = run, rng
        self.link = run.client()

    def move(self):
        if self.link.closed is not None:
            self.link.leave()
            self.link = self.run.client()
        link, rng = self.link, self.rng
        turn = link.session._connection.turn.value
        if rng.random() < 0.9:
            if turn == "action":
                return
            envs = rng.choice(
                [(0, 3), (0,), (3, 1)]
            )  # so feedback may be of envs that were never asked about, or twice
            values = [-1.0 - env for env in envs]
            right = (
                link.infer(envs, values) if turn == "infer" else link.feedback(envs, values, rewards=[-1] * len(envs))
            )
            link.say(right)
        else:
            link.say(
                rng.choice(
                    [
                        link.infer((0,), data=link.observation([-1.0, -2.0])),
                        link.infer(env_indices=np.array([0, 0])),
                        link.feedback((0, 1), [-1.0] * 3),
                        link.feedback((0,), rewards=[np.nan]),
                        link.infer((0,), [np.inf]),
                        b"\xc1",
                    ]
                )
            )


def play(simulate, algorithm, seed, moves, **options):
    rng = random.Random(seed)
    run = simulate(algorithm, **options)
    honest = [Honest(run, number, rng) for number in range(1, rng.randint(2, 4))]
    players = [*honest, *(Liar(run, rng) for _ in range(rng.randint(0, 2)))]
    for _ in range(moves):
        action = rng.random()
        if action < 0.55:
            rng.choice(players).move()
        elif action < 0.8 and run.runtime.jobs:
            run.runtime.do_job()
        elif action < 0.95:
            run.runtime.run_soon()
        else:
            run.runtime.advance(rng.random() / 50)
    run.runtime.settle()
    return run, honest


def stored(row):
    return (
        row["obs"]["states"]["obs"][0, 0],
        np.float32(row["runtime_state"]["ticket"][0, 0]),
        row["next_obs"]["states"]["obs"][0, 0],
    )


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_every_stored_transition_is_what_its_own_client_sent(simulate, fakes, seed):
    run, honest = play(simulate, fakes.algorithm(on_policy=False), seed, 150, mini_infer_batch_size=seed % 3 + 1)
    assert run.scheduler.ending is None
    sent = {row for client in honest for row in client.book}
    seen = [stored(row) for row in run.algorithm.stored if row["reward"] >= 0]
    assert set(seen) <= sent
    tickets = [row["runtime_state"]["ticket"][0, 0] for row in run.algorithm.stored]
    assert len(tickets) == len(set(tickets))  # lesson 4: nothing twice
    for row in run.algorithm.stored:
        value, ticket, next_value = stored(row)
        assert row["runtime_state"]["saw"][0, 0] == value
        assert row["train_state"][0][0, 0] == ticket * 10
        assert row["reward"] == pytest.approx(next_value / 7) or value < 0
    run.accounting.finish()
    total = run.accounting.total
    assert total.pending == 0
    assert total.stored == len(run.algorithm.stored)


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_on_policy_only_frames_of_the_current_policy_are_stored(simulate, fakes, seed):
    algorithm = fakes.algorithm(fill=7)
    versions = {}
    infer, feedback = algorithm.infer, algorithm.feedback

    def tagged(obs):
        action, runtime_state = infer(obs)
        versions.update(dict.fromkeys(runtime_state["ticket"][:, 0].tolist(), algorithm.learned))
        return action, runtime_state

    def checked(**row):
        assert versions[row["runtime_state"]["ticket"][0, 0]] == algorithm.learned
        assert not algorithm.should_learn()
        return feedback(**row)

    algorithm.infer, algorithm.feedback = tagged, checked
    run, _ = play(simulate, algorithm, seed, 150)
    assert run.scheduler.ending is None
    run.accounting.finish()
    assert run.accounting.total.pending == 0
    assert run.accounting.total.stored == len(algorithm.stored)
