"""What the probe environment tells about a client (SPEC 8.1)."""

from collections import Counter

import numpy as np
import pytest
from plugrl_protocol.conformance.probe_env import episode_length
from plugrl_protocol.conformance.probe_tracker import ProbeTracker
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.messages import Feedback, Infer
from plugrl_protocol.observation import Observation

HORIZON, WIDTH = 4, 3
ENVIRONMENT = "8.1 probe/environment"


class Talk:
    """A tracker, and what an honest client would tell it."""

    def __init__(self, dtype: str = "float64") -> None:
        self.passed: Counter[str] = Counter()
        self.tracker = ProbeTracker(lambda *clauses: self.passed.update(clauses), HORIZON, WIDTH, np.dtype(dtype))
        self.time: dict[int, int] = {}
        self.action: dict[int, np.ndarray] = {}

    def observe(self, envs: list[int], **states: np.ndarray) -> Observation:
        width = WIDTH if self.action else 1
        shown = {
            "t": np.array([[self.time.get(env, 0)] for env in envs], np.float64).reshape(len(envs), 1),
            "a": np.array([self.action.get(env, np.zeros(width)) for env in envs], np.float64).reshape(len(envs), -1),
        }
        return Observation({}, shown | states, ["probe"] * len(envs))

    def infer(self, envs: list[int], reuse: list[bool] | None = None, **states: np.ndarray) -> np.ndarray:
        sent = envs if reuse is None else [env for env, reused in zip(envs, reuse, strict=True) if not reused]
        flags = None if reuse is None else np.array(reuse)
        observation = self.observe(sent, **states)
        return self.tracker.answer(Infer(observation, np.array(envs), np.zeros(len(envs), int), flags))

    def ran(self, env: int, chunk: np.ndarray, row: int, steps: int) -> None:
        """An env has run the first steps of its chunk."""
        self.time[env] = self.time.get(env, 0) + steps
        self.action[env] = chunk[steps - 1, row].astype(np.float64)

    def feedback(self, rewards: dict[int, float], **changes: np.ndarray) -> None:
        envs = list(rewards)
        fields = {
            "observation": self.observe(envs),
            "rewards": np.array(list(rewards.values()), np.float32),
            "terminated": np.array([self.time[env] >= episode_length(env) for env in envs]),
            "truncated": np.zeros(len(envs), bool),
        }
        self.tracker.feedback(
            Feedback(env_indices=np.array(envs), step_ids=np.zeros(len(envs), int), info={}, **(fields | changes))
        )


def broken(run, *arguments, **changes) -> tuple[str, str]:
    with pytest.raises(ViolationError) as raised:
        run(*arguments, **changes)
    return raised.value.clause, raised.value.detail


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_an_honest_client_passes_every_clause(dtype):
    talk = Talk(dtype)
    chunk = talk.infer([0, 1])
    assert chunk.shape == (HORIZON, 2, WIDTH)
    talk.ran(0, chunk, 0, 3)
    talk.ran(1, chunk, 1, 4)
    talk.feedback({0: 3, 1: 4})
    talk.time[0] = 0
    talk.infer([1, 0])

    assert talk.passed["5.3 action/time-major"] == 1, "the last row of all is the same in both readings"
    assert talk.passed["5.4 feedback/reward-sum"] == 2
    assert talk.passed["5.4 feedback/final-observation"] == 1
    assert talk.passed["5.4 feedback/early-end"] == 1
    assert talk.passed["5.4 feedback/next-episode"] == 1
    assert talk.passed["5.3 action/prefix"] == 2
    assert talk.passed[ENVIRONMENT] == 2
    assert (talk.passed["5.3 action/dtype"] > 0) == (dtype != "float32")


def test_a_prefix_of_the_chunk_is_allowed(talk):
    chunk = talk.infer([2])
    talk.ran(2, chunk, 0, 1)
    talk.feedback({2: 1})

    assert talk.passed["5.3 action/prefix"] == 1
    assert talk.passed["5.4 feedback/reward-sum"] == 0, "one step does not tell a sum from the last reward"


def test_one_env_alone_does_not_show_the_axis_order(talk):
    talk.ran(0, talk.infer([0]), 0, 3)
    talk.feedback({0: 3})

    assert talk.passed["5.3 action/time-major"] == 0


def test_reused_rows_go_on_from_their_feedback(talk):
    chunk = talk.infer([1, 2])
    talk.ran(1, chunk, 0, 4)
    talk.ran(2, chunk, 1, 4)
    talk.feedback({1: 4, 2: 4})
    chunk = talk.infer([1, 2], reuse=[True, False])
    talk.ran(1, chunk, 0, 1)
    talk.feedback({1: 1})

    assert talk.passed["5.4 feedback/final-observation"] == 1


def test_the_last_steps_reward_alone(talk):
    talk.ran(0, talk.infer([0]), 0, 3)

    assert broken(talk.feedback, {0: 1}) == (
        "5.4 feedback/reward-sum",
        "env 0: expected the sum of 3 rewards of 1, got 1",
    )


def test_a_reset_inside_the_step(talk):
    talk.ran(0, talk.infer([0]), 0, 3)
    talk.time[0] = 0
    clause, detail = broken(talk.feedback, {0: 3}, terminated=np.array([True]))

    assert clause == "5.4 feedback/final-observation"
    assert "expected t = 3 on its done step, got 0" in detail


def test_an_array_read_env_major(talk):
    chunk = talk.infer([0, 1])
    talk.ran(1, chunk.reshape(2, HORIZON, WIDTH).swapaxes(0, 1), 1, 3)
    clause, detail = broken(talk.feedback, {1: 3})

    assert clause == "5.3 action/time-major"
    assert "[n,H,...]" in detail


def test_an_array_of_float64_read_as_float32(talk):
    chunk = talk.infer([0, 1])
    wrong = np.frombuffer(chunk.tobytes(), np.float32)[: chunk.size].reshape(chunk.shape)
    talk.ran(0, wrong, 0, 3)
    clause, detail = broken(talk.feedback, {0: 3})

    assert clause == "5.3 action/dtype"
    assert "read the float64 array as float32" in detail


def test_the_row_of_another_env(talk):
    talk.ran(1, talk.infer([0, 1]), 0, 1)
    clause, detail = broken(talk.feedback, {1: 1})

    assert clause == "5.3 action/time-major"
    assert "of row 0; its own is row 1" in detail


def test_actions_that_are_nowhere_in_the_chunk(talk):
    talk.ran(0, talk.infer([0]) + 0.5, 0, 3)
    assert broken(talk.feedback, {0: 3})[0] == "5.3 action/dtype"

    talk.action[0] = np.zeros(WIDTH + 1)
    assert broken(talk.feedback, {0: 3})[0] == ENVIRONMENT


def test_nan_as_an_action_is_no_crash(talk):
    talk.ran(0, talk.infer([0]) * np.nan, 0, 3)

    assert broken(talk.feedback, {0: 3})[0] == "5.3 action/dtype"


def test_going_on_after_the_episode_has_ended(talk):
    talk.ran(0, talk.infer([0]), 0, 4)
    clause, detail = broken(talk.feedback, {0: 4})

    assert clause == "5.4 feedback/early-end"
    assert "ends after 3 steps" in detail


def test_more_steps_than_the_chunk_has(talk):
    talk.ran(2, talk.infer([2]), 0, 4)
    talk.time[2] = 5

    assert broken(talk.feedback, {2: 5})[0] == "5.3 action/prefix"


def test_a_time_that_does_not_fit(talk):
    talk.ran(2, talk.infer([2]), 0, 4)
    talk.time[2] = 3

    assert broken(talk.feedback, {2: 4}) == (
        ENVIRONMENT,
        "env 2 at t = 0 ran 4 steps of its chunk: expected t = 4, got 3",
    )


@pytest.mark.parametrize("flags", [{"terminated": np.array([False])}, {"truncated": np.array([True])}])
def test_flags_that_do_not_fit(talk, flags):
    talk.ran(0, talk.infer([0]), 0, 3)

    assert broken(talk.feedback, {0: 3}, **flags)[0] == ENVIRONMENT


def test_an_episode_that_does_not_begin_anew(talk):
    talk.ran(0, talk.infer([0]), 0, 3)
    talk.feedback({0: 3})
    talk.time[0] = 1

    assert broken(talk.infer, [0])[0] == "5.4 feedback/next-episode"


def test_an_infer_that_contradicts_the_feedback_before(talk):
    talk.ran(2, talk.infer([2]), 0, 4)
    talk.feedback({2: 4})
    talk.time[2] = 2

    assert broken(talk.infer, [2]) == (
        ENVIRONMENT,
        "env 2: expected the infer to show what its feedback showed, t = 4, got 2",
    )


@pytest.mark.parametrize(
    ("envs", "states", "told"),
    [
        ([1000], {}, "expected envs below 1000, got 1000"),
        ([0], {"t": np.array([[3.0]])}, "expected t in 0..2 in an infer, got 3"),
        ([0], {"t": np.array([[-1.0]])}, "expected t in 0..2"),
        ([0], {"t": np.array([[0.5]])}, "expected whole numbers, got 0.5"),
        ([0], {"t": np.zeros((1, 2))}, "expected float[n,1], got float[1,2]"),
    ],
)
def test_an_infer_of_another_environment(talk, envs, states, told):
    clause, detail = broken(talk.infer, envs, **states)

    assert clause == ENVIRONMENT
    assert told in detail


def test_other_states_are_named(talk):
    observation = Observation({}, {"qpos": np.zeros((1, 2))}, ["x"])
    clause, detail = broken(talk.tracker.answer, Infer(observation, np.array([0]), np.array([0])))

    assert (clause, detail) == (ENVIRONMENT, "infer.data.states: expected t and a, got qpos")
