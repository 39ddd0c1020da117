"""Each `--bug` of the clients breaks its rule where it can be seen, and without it the rule is kept.

Which clause the checkers name for each is tested with the checkers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from plugrl_protocol.closing import RESYNC, STOP, Close
from plugrl_protocol.messages import Infer
from websockets.exceptions import ConnectionClosed

from tests.peers.processes import Client, raw
from tests.peers.referee import HORIZON, Script, Talk, coded, referee, until_resync

ENOUGH = Close(1008, "seen enough")


def speaks_second(talk: Talk) -> bool:
    try:
        talk.message(seconds=0.2)
    except TimeoutError:
        return True
    return False


def takes_large_frames(talk: Talk) -> bool:
    talk.metadata(padding="x" * 1_200_000)
    try:
        talk.infer()
    except ConnectionClosed:
        return False
    return True


def first_feedback(**metadata: object) -> Callable[[Talk], tuple[Infer, Any]]:
    def play(talk: Talk) -> tuple[Infer, Any]:
        talk.metadata(**metadata)
        return talk.exchange()

    return play


def runs_the_chunk(talk: Talk) -> bool:
    """Whether `a` is the row of the last step run, for envs that end and for envs that do not."""
    talk.metadata()
    infer = talk.infer()
    actions = coded(infer.env_indices)
    talk.act(infer, actions)
    for rows in (1, 2):  # the first feedback is of an env that ended early, the next of one whose chunk ran out
        feedback = talk.feedback()
        for row, env in enumerate(feedback.env_indices):
            steps = min(HORIZON, 3 + 2 * (env % 3))
            if feedback.observation.states["a"][row].tolist() != actions[steps - 1, env].tolist():
                return False
        if rows == 1:
            talk.act(talk.infer())
    return True


def sums_rewards(talk: Talk) -> bool:
    _, feedback = first_feedback()(talk)
    return bool(np.array_equal(feedback.rewards, feedback.observation.states["t"][:, 0]))


def shows_the_last_observation(talk: Talk) -> bool:
    _, feedback = first_feedback()(talk)
    return bool(feedback.terminated[0]) and feedback.observation.states["t"][0, 0] == 3


def opens_with_an_infer(talk: Talk) -> bool:
    talk.metadata()
    return isinstance(talk.message(), Infer)


def asks_for_every_env(talk: Talk) -> bool:
    talk.metadata()
    return talk.infer().env_indices.tolist() == [0, 1, 2]


def stops(talk: Talk) -> None:
    talk.metadata()
    talk.infer()
    talk.close(STOP)


def falls_silent_after_text(talk: Talk) -> bool:
    talk.metadata()
    talk.infer()
    talk.socket.send("text")
    try:
        talk.message()
    except ConnectionClosed:
        return True
    return False


def reuses_nothing_unasked(talk: Talk) -> bool:
    talk.metadata()
    return talk.infer().reuse is None


def reuses_nothing_after_a_reset(talk: Talk) -> bool:
    _, feedback = first_feedback(features=["reuse-feedback-obs"])(talk)
    assert feedback.terminated.all()
    return not talk.infer().reuse.any()


@dataclass(frozen=True)
class Case:
    """Scripts of which the last returns whether the rule is kept; `first` are played on the connections before."""

    judge: Script
    first: tuple[Script, ...] = ()


CASES = {
    "early-infer": Case(speaks_second),
    "compress": Case(lambda talk: "Sec-WebSocket-Extensions" not in talk.headers),
    "frame-cap": Case(takes_large_frames),
    "float32": Case(runs_the_chunk),
    "env-major": Case(runs_the_chunk),
    "last-step-reward": Case(sums_rewards),
    "reset-in-step": Case(shows_the_last_observation),
    "resend-feedback": Case(opens_with_an_infer, (until_resync(2),)),
    "ignore-text": Case(falls_silent_after_text),
    "stale-chunk": Case(asks_for_every_env, (until_resync(2),)),
    "reuse-unoffered": Case(reuses_nothing_unasked),
    "reuse-after-reset": Case(reuses_nothing_after_a_reset),
}


def keeps_the_rule(client: Client, name: str, *options: str) -> bool:
    case = CASES[name]

    def judge(talk: Talk) -> object:
        kept = case.judge(talk)
        talk.close(ENOUGH)
        return kept

    with referee(*case.first, judge) as played:
        client.run(played.port, "--probe", *options)
    return bool(played.results[len(case.first)])


@pytest.mark.parametrize("name", CASES)
def test_breaks_its_rule_and_only_then(client: Client, name: str) -> None:
    assert keeps_the_rule(client, name)
    assert not keeps_the_rule(client, name, "--bug", name)


def test_ignore_stop_reconnects(client: Client) -> None:
    with referee(stops) as judge:
        assert client.run(judge.port, "--probe").status == 0
    assert judge.results == [None]
    with referee(stops) as judge:
        assert client.run(judge.port, "--probe", "--bug", "ignore-stop").status != 0
    assert judge.results == [None, "one connection too many"]


def test_stale_chunk_reports_an_env_that_holds_no_action(client: Client) -> None:
    """SPEC 7.6: what a checker sees of it."""

    def judge(talk: Talk) -> bool:
        talk.metadata()
        asked: set[int] = set()
        for _ in range(3):
            infer, feedback = talk.exchange()
            asked |= set(infer.env_indices.tolist())
            if set(feedback.env_indices.tolist()) - asked:
                talk.close(ENOUGH)
                return True
        return False

    with referee(until_resync(2), judge) as played:
        client.run(played.port, "--probe", "--bug", "stale-chunk")
    assert played.results[1] is True


def test_every_bug_is_tested(client: Client) -> None:
    assert set(raw.BUGS) == {*CASES, "ignore-stop"}
    text = client.alone("--help").output
    assert all(f" {name} " in text for name in raw.BUGS)


def test_resync_is_what_the_scripts_close_with() -> None:
    assert Close(1001, "plugrl-server-resync") == RESYNC
