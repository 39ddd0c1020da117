"""Phase exchange: what an honest client meets, from the handshake to a frame over 1 MiB."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from plugrl_protocol.conformance.calling.caller import Caller, KeyNeededError
from plugrl_protocol.conformance.calling.script import LARGE, episode_info
from plugrl_protocol.conformance.calling.talk import ServerClosedError, Talk
from plugrl_protocol.conformance.peer.dialing import DialError
from plugrl_protocol.conformance.report import ViolationError

_ENVS = (2, 0, 65_535)


def exchange(caller: Caller) -> None:
    """Look at the handshake, then exchange: with ragged sets, large frames, and idle clients beside."""
    _judge_http(caller)
    _judge_handshake(caller)
    talk = caller.call("main")
    _exchange_ragged(caller, talk)
    _exchange_large(caller, talk)
    _exchange_beside_idle(caller, talk)
    talk.judge_liveness()


def _judge_http(caller: Caller) -> None:
    for path, clause in (("/healthz", "1.3 http/healthz"), ("/readyz", "1.3 http/readyz")):
        status = caller.get(path)
        if status == 200:
            caller.report.passed(clause)
        else:
            caller.report.note(clause, f"GET {path}: expected HTTP 200, got {status or 'no HTTP answer'}")


def _judge_handshake(caller: Caller) -> None:
    """Offer compression; and where there is no key, send one."""
    key = caller.options.api_key
    authorization = f"Api-Key {key or 'conformance'}"
    try:
        endpoint = caller.dial("handshake", authorization=authorization, compression=True)
    except DialError as error:
        if error.status != 401:
            raise
        if key is None:
            caller.call("handshake")  # raises if there is a key after all
            raise ViolationError("1.2 auth/ignored", "HTTP 401 to an Authorization header, without a key") from None
        raise KeyNeededError("the server answers HTTP 401: give its key by --api-key") from None
    if key is None:
        caller.report.passed("1.2 auth/ignored")
    accepted = [extension.name for extension in endpoint.protocol.extensions]
    if accepted:
        raise ViolationError("1.1 framing/compression", f"handshake: expected no compression, got {accepted}")
    caller.report.passed("1.1 framing/compression")
    caller.take(endpoint).hang_up()


@dataclass(frozen=True)
class _Round:
    """One exchange: who asks, and whose chunk ends."""

    asked: list[int]
    finished: list[int]


def _rounds(count: int) -> Iterator[_Round]:
    """Exchanges of three envs: the sets change from message to message, and infer and feedback differ."""
    holding: list[int] = []
    for number in range(count):
        asked = [env for env in _ENVS if env not in holding]
        if number % 2:
            asked.reverse()
        holding += asked
        finished = holding[: 1 + number % len(holding)]
        holding = holding[len(finished) :]
        yield _Round(asked, finished)


def _exchange_ragged(caller: Caller, talk: Talk) -> None:
    rows, differs = 0, False
    for number, turn in enumerate(_rounds(caller.options.exchanges)):
        infer = talk.script.infer(turn.asked)
        try:
            talk.ask(infer, **({"x-conformance": number} if number % 2 else {}))
        except ServerClosedError as closed:
            detail = f"infer {number + 1} of envs {turn.asked}: expected an action, closed with {closed.close}"
            raise ViolationError(_blame(rows, turn, differs), detail) from None
        _count(caller, number, rows, turn, differs)
        rows, differs = len(turn.asked), set(turn.asked) != set(turn.finished)
        _tell(talk, turn.finished, number)


def _blame(rows: int, turn: _Round, differs: bool) -> str:
    """What a server breaks that closes on this round."""
    if differs:
        return "4.3 feedback/any-set"
    return "5.2 infer/ragged" if rows and rows != len(turn.asked) else "4.2 exchange/progress"


def _count(caller: Caller, number: int, rows: int, turn: _Round, differs: bool) -> None:
    """What an answered infer shows."""
    if rows:
        caller.report.passed("5.4 feedback/no-reply", "5.4 feedback/info", "3.4 observation/text")
    if rows not in (0, len(turn.asked)):
        caller.report.passed("5.2 infer/ragged")
    if differs:
        caller.report.passed("4.3 feedback/any-set")
    if number % 2:
        caller.report.passed("3.1 codec/unknown-keys")


def _tell(talk: Talk, finished: list[int], number: int) -> None:
    """A feedback; in turn with no info, with that of an ended episode, and with a single row's that needs no split."""
    rows, ended = len(finished), number % 3 == 1
    info = episode_info(rows) if ended else {"task": "pick"} if rows == 1 else {}
    text = np.array(["h\u00f6her", "pick up the cup", ""] * rows)[:rows]
    observation = talk.script.observation(finished, text)
    feedback = talk.script.feedback(finished, [ended] * rows, info=info, observation=observation)
    talk.tell(feedback, loose=number % 2 == 1)


def _exchange_large(caller: Caller, talk: Talk) -> None:
    """Send 2.25 MiB as an infer and as a feedback."""
    envs = list(range(1000, 1000 + talk.script.large_rows()))
    large = talk.script.large_observation(envs)
    try:
        talk.ask(talk.script.infer(envs, observation=large))
        talk.tell(talk.script.feedback(envs, observation=large))
        talk.exchange([0])
    except ServerClosedError as closed:
        detail = f"a frame of {LARGE:,} bytes: expected an action, the server closed with {closed.close}"
        raise ViolationError("1.1 framing/size", detail) from None
    caller.report.passed("1.1 framing/size")


def _exchange_beside_idle(caller: Caller, talk: Talk) -> None:
    """Exchange while one client never upgrades and another never asks."""
    caller.connect_only()
    try:
        caller.call("idle")
        for _ in range(2):
            talk.exchange([0, 1])
    except (DialError, ServerClosedError, ViolationError) as broken:
        raise ViolationError("6 batching/idle", f"beside idle clients: {broken}") from None
    caller.report.passed("6 batching/idle")
