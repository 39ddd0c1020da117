"""Whole runs of a robot on a simulated clock: the server stalls, learns and jitters, and no real time passes."""

import random

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import BaseEnv, EnvError, Observation, Step
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.link.transport import Closed
from plugrl_env_client.observers import RolloutObserver
from plugrl_env_client.pacing.pacer import Pacer
from plugrl_env_client.reporting.tally import Tally
from plugrl_env_client.rollout import Outcome, Rollout, RolloutOptions
from plugrl_protocol.closing import RESYNC
from plugrl_protocol.messages import Action

PERIOD = 0.1


class Clock:
    """Time that passes only where somebody says so."""

    def __init__(self):
        self.time = 0.0

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds


class Robot(BaseEnv):
    """Notes when it is told what. Its reward is 1 a step; its state says how many steps it has taken in the episode."""

    env_id = "robot"

    def __init__(self, clock, *, length=10**9, num_envs=1, camera_delay=None):
        self.num_envs = num_envs
        self.clock = clock
        self.length = length
        self.camera_delay = camera_delay
        self.steps = 0
        self.told = []  # (time, action), "hold", "reset"

    def reset(self, seed):
        return self.reset_indices(np.arange(1))

    def reset_indices(self, indices):
        self.steps = 0
        self.clock.sleep(5.0)  # somebody puts things back
        self.told.append("reset")
        return self.show()

    def step(self, actions):
        self.told.append((round(self.clock.time, 6), actions[0].tolist()))
        self.clock.sleep(0.02)
        self.steps += 1
        no = np.zeros(1, bool)
        return Step(self.show(), np.ones(1, np.float32), no, no | (self.steps >= self.length), {})

    def hold(self):
        self.told.append("hold")

    def show(self):
        if self.camera_delay is not None:
            self.captured_at = self.clock.time - self.camera_delay
        return Observation(images={}, states={"t": np.full((1, 1), float(self.steps))}, text=[""])

    @property
    def actions(self):
        return [told for told in self.told if isinstance(told, tuple)]


class Server:
    """Both ends of a connection: answers after so many seconds each, with chunks that say which and which step.

    Args:
        delays: seconds to each answer; the connection is lost after them.
    """

    features = frozenset()

    def __init__(self, clock, delays, horizon):
        self.clock = clock
        self.delays = iter(delays)
        self.horizon = horizon
        self.asked = []
        self.reported = []
        self.due = None
        self.exchanges = self.feedback_rows = self.unconfirmed_rows = 0
        self.waited = 0.0

    def ask(self, infer):
        assert self.due is None
        delay = next(self.delays, None)
        if delay is None:
            raise Closed(RESYNC)
        self.asked.append(infer.observation.states["t"].item())
        self.due = self.clock.time + delay

    def answer(self, patience=None):
        left = self.due - self.clock.time
        if patience is not None and patience < left:
            self.clock.sleep(patience)
            return None
        self.clock.sleep(max(left, 0.0))
        self.due = None
        chunk = [[[float(len(self.asked)), float(step)]] for step in range(self.horizon)]
        return Action(np.array(chunk), np.zeros(1, np.int64))

    def feedback(self, feedback):
        self.exchanges += 1
        done = bool(feedback.terminated[0] | feedback.truncated[0])
        self.reported.append((feedback.observation.states["t"].item(), float(feedback.rewards[0]), done))

    def reusable(self, env_indices):
        return np.zeros(len(env_indices), bool)

    def poll(self):
        pass

    def close(self, close):
        pass


class Run:
    """A robot's run, over one connection for each list of delays."""

    def __init__(self, *delays, horizon=2, length=10**9, deadline=None, camera_delay=None, observers=(), **options):
        self.clock = Clock()
        self.robot = Robot(self.clock, length=length, camera_delay=camera_delay)
        self.servers = [Server(self.clock, each, horizon) for each in delays]
        self.left = list(self.servers)
        self.tally = Tally(1)
        self.interrupts = Interrupts()
        self.pacer = Pacer(
            1 / PERIOD,
            deadline,
            now=self.clock.now,
            sleep=self.clock.sleep,
            captured_at=lambda: self.robot.captured_at,
        )
        rollout = Rollout(
            self.robot,
            self,
            RolloutOptions(**options),
            interrupts=self.interrupts,
            tally=self.tally,
            progress=lambda waited: None,
            observers=observers,
            pacer=self.pacer,
        )
        self.outcome = rollout.run()
        self.counts = self.pacer.counts

    def connect(self):
        if not self.left:
            self.interrupts.request()
            return Server(self.clock, [], 1)
        return self.left.pop(0)

    def completed(self):
        pass

    def lost(self, closed):
        self.clock.sleep(3.0)


def times(actions):
    """Seconds from the first of these actions on."""
    return [round(time - actions[0][0], 3) for time, _ in actions]


def test_steps_lie_on_the_grid_whatever_the_jitter():
    jitter = random.Random(0)
    run = Run([jitter.uniform(0.0, 0.07) for _ in range(50)], num_steps=100)
    assert run.outcome is Outcome.LIMIT
    assert times(run.robot.actions) == [round(PERIOD * step, 3) for step in range(100)]
    assert [action for _, action in run.robot.actions[:4]] == [[1.0, 0.0], [1.0, 1.0], [2.0, 0.0], [2.0, 1.0]]
    counts = run.counts
    assert (counts.steps, counts.late_steps, counts.late_answers, counts.fill_ins, counts.stops) == (100, 0, 0, 0, 0)
    # the second action of a chunk is given 2 periods after the observation was captured, less what a step takes
    assert counts.ages.longest == pytest.approx(0.18)
    assert counts.ages.quantile(0.5) == pytest.approx(0.08, rel=0.011)


@pytest.mark.parametrize("length", [10**9, 5])
def test_ages_count_from_when_the_camera_captured(length):
    delays = [0.05] * 50
    plain = Run(delays, num_steps=60, length=length)
    camera = Run(delays, num_steps=60, length=length, camera_delay=0.09)
    assert camera.robot.actions == plain.robot.actions
    ages, older = plain.counts.ages, camera.counts.ages
    assert older.longest == pytest.approx(ages.longest + 0.09)
    for share in (0.0, 0.5, 0.95):
        assert older.quantile(share) == pytest.approx(ages.quantile(share) + 0.09, rel=0.02)
    assert camera.tally.snapshot().as_json()["pacing"]["observation_age"]["max"] == pytest.approx(
        older.longest, abs=1e-4
    )


def test_an_answer_is_late_for_an_old_image_earlier():
    assert Run([0.0, 0.25, 0.0], num_steps=6, on_stale="hold").counts.fill_ins == 0
    late = Run([0.0, 0.25, 0.0], num_steps=6, on_stale="hold", camera_delay=0.15)
    assert (late.counts.late_answers, late.counts.fill_ins) == (1, 1)


def test_an_answer_that_misses_its_slot_makes_the_step_late_but_not_the_next_ones():
    run = Run([0.0, 0.15, 0.0], num_steps=6)
    assert times(run.robot.actions) == [0.0, 0.1, 0.3, 0.4, 0.5, 0.6]
    assert (run.counts.late_steps, run.counts.missed_slots, run.counts.late_answers) == (1, 1, 0)
    assert "hold" not in run.robot.told


def test_the_warm_up_has_no_deadline():
    run = Run([40.0, 0.0], num_steps=3, on_stale="hold")
    assert run.robot.told == ["reset", (45.0, [1.0, 0.0]), (45.1, [2.0, 0.0]), (45.2, [2.0, 1.0])]
    counts = run.counts
    assert (counts.warm_up, counts.late_answers, counts.fill_ins, counts.stops) == (40.0, 0, 0, 0)
    assert counts.ages.longest < 0.2


@pytest.mark.parametrize(("on_stale", "filled"), [("hold", [1.0, 1.0]), ("zero", [0.0, 0.0])])
def test_a_late_answer_is_filled_in_from_the_deadline_on(on_stale, filled):
    run = Run([0.0, 0.45, 0.0, 0.0], horizon=4, replan_steps=2, num_steps=8, on_stale=on_stale)
    # captured at 0.12, so that the deadline is the slot at 0.4; the answer is there at 0.57
    expected = [[1, 0], [1, 1], filled, filled, [2, 0], [3, 0], [3, 1]]
    assert [action for _, action in run.robot.actions[:7]] == expected
    assert times(run.robot.actions[:7]) == [0.0, 0.1, 0.4, 0.5, 0.6, 0.7, 0.8]
    counts = run.counts
    assert (counts.answers, counts.late_answers, counts.fill_ins, counts.stops) == (4, 1, 2, 0)
    # the fill-ins are steps of the decision that they stood in for: it was made at 2, and what it led to is seen at 5
    server = run.servers[0]
    assert server.asked[:3] == [0.0, 2.0, 5.0]
    assert server.reported[:3] == [(2.0, 2.0, False), (5.0, 3.0, False), (7.0, 2.0, False)]


def test_a_chunk_that_is_a_little_late_loses_its_last_steps():
    run = Run([0.0, 0.35, 0.0], horizon=5, num_steps=11, on_stale="hold")
    # one fill-in at 0.7, the answer at 0.77: four of five steps are run, and it ends when it would have
    assert times(run.robot.actions)[5:] == [0.7, 0.8, 0.9, 1.0, 1.1, 1.2]
    assert [action for _, action in run.robot.actions[5:]] == [[1, 4], [2, 0], [2, 1], [2, 2], [2, 3], [3, 0]]


def test_nothing_but_the_first_action_is_run_of_a_chunk_that_is_very_late():
    run = Run([0.0, 60.0, 0.0], horizon=50, replan_steps=3, num_steps=5, on_stale="stop")
    first, held = run.robot.told[:4], run.robot.told[4]
    assert first == ["reset", (5.0, [1, 0]), (5.1, [1, 1]), (5.2, [1, 2])]
    assert held == "hold"
    assert run.robot.told[5:] == [(65.22, [2, 0]), (65.32, [3, 0])]
    counts = run.counts
    assert (counts.stops, counts.late_answers, counts.fill_ins) == (1, 1, 0)
    assert counts.ages.longest == pytest.approx(60.0)
    assert run.servers[0].reported == [(3.0, 3.0, False), (4.0, 1.0, False), (5.0, 1.0, False)]


def test_an_episode_that_ends_in_a_fill_in_is_reported_with_it_and_nothing_is_run_of_the_chunk():
    run = Run([0.0, 9.0, 0.0], length=4, num_steps=6, on_stale="hold")
    assert [told if told in ("hold", "reset") else told[1] for told in run.robot.told] == [
        "reset",
        [1, 0],
        [1, 1],
        [1, 1],
        [1, 1],
        "hold",
        "reset",
        [3, 0],
        [3, 1],
    ]
    assert run.servers[0].reported == [(2.0, 2.0, False), (4.0, 2.0, True), (2.0, 2.0, False)]
    assert (run.tally.episodes, list(run.tally.recent)) == (1, [4.0])
    assert (run.counts.fill_ins, run.counts.stops) == (2, 1)


def test_an_episode_begins_without_an_action_to_repeat():
    run = Run([0.0, 9.0, 0.0], length=2, num_steps=4, on_stale="hold")
    assert run.robot.told[3:5] == ["reset", "hold"]
    assert run.robot.told[5] == (pytest.approx(5.12 + 5.0 + 9.0), [2, 0])


def test_after_the_last_step_that_was_asked_for_nothing_is_filled_in():
    run = Run([0.0, 9.0], num_steps=3, on_stale="hold")
    assert [told for told in run.robot.told[3:] if told != "hold"] == [(5.4, [1, 1])]
    assert run.tally.steps == 3
    assert run.servers[0].reported == [(2.0, 2.0, False), (3.0, 1.0, False)]


def test_a_lost_connection_forgets_what_was_filled_in():
    class Lost(Server):
        def answer(self, patience=None):
            if len(self.asked) == 2 and self.clock.time > 5.45:
                raise Closed(RESYNC)
            return super().answer(patience)

    class Losing(Run):
        def connect(self):
            server = super().connect()
            if server is self.servers[0]:
                server.__class__ = Lost
            return server

    run = Losing([0.0, 60.0], [7.0, 0.0], num_steps=6, on_stale="hold")
    told = run.robot.told
    assert told[1:6] == [(5.0, [1, 0]), (5.1, [1, 1]), (5.4, [1, 1]), (5.5, [1, 1]), "hold"]
    second = run.servers[1]
    assert second.asked[0] == 4.0
    assert second.reported == [(5.0, 1.0, False), (6.0, 1.0, False)]  # what it sees is old: one step, and asked anew
    assert run.counts.warm_up == 7.0


def test_a_long_run_with_everything_that_happens_to_it():
    """Every step is told, no action is older than its deadline and its place in the chunk, every reward is reported."""
    chance = random.Random(1)

    def delay(exchange):
        if exchange % 97 == 96:
            return 30.0  # the server learns
        return chance.choice([0.01, 0.05, 0.08, 0.2, 0.31, 0.55])

    class Witness(RolloutObserver):
        seen = 0

        def stepped(self, actions, step, resetting):
            self.seen += 1

    witness = Witness()
    run = Run(
        [delay(exchange) for exchange in range(700)],
        [delay(exchange) for exchange in range(700)],
        horizon=4,
        length=120,
        observers=[witness],
        on_stale="zero",
    )
    assert run.outcome is Outcome.INTERRUPTED
    actions = run.robot.actions
    assert witness.seen == len(actions) == run.tally.steps == run.counts.steps
    gaps = np.diff([time for time, _ in actions])
    assert gaps.min() >= 0.75 * PERIOD
    reported = [reward for server in run.servers for _, reward, _ in server.reported]
    assert sum(reported) == len(actions)
    counts = run.counts
    assert counts.fill_ins == sum(action == [0.0, 0.0] for _, action in actions)
    assert 100 < counts.late_answers < counts.answers == 1400
    assert counts.stops < counts.late_answers
    assert counts.ages.quantile(0.95) < 0.3 + 4 * PERIOD
    assert run.tally.snapshot().as_json()["pacing"]["fill_ins"] == counts.fill_ins


def test_two_robots_do_not_share_a_connection():
    clock = Clock()
    pacer = Pacer(10.0, None, now=clock.now, sleep=clock.sleep)
    with pytest.raises(EnvError, match="2 envs share a connection"):
        Rollout(
            Robot(clock, num_envs=2),
            None,
            RolloutOptions(),
            interrupts=Interrupts(),
            tally=Tally(2),
            progress=lambda waited: None,
            pacer=pacer,
        )
