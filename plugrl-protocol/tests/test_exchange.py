"""SPEC 4: one table of turns, and who holds an action."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plugrl_protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from plugrl_protocol.exchange import RULES, Exchange, Role, Turn
from plugrl_protocol.messages import Metadata

Make = Callable[..., Any]


@pytest.fixture
def messages(infer: Make, action: Make, feedback: Make) -> dict[Turn, Any]:
    return {
        Turn.METADATA: Metadata({}),
        Turn.INFER: infer([3, 1]),
        Turn.ACTION: action([3, 1]),
        Turn.FEEDBACK: feedback([3, 1]),
    }


def at_turn(turn: Turn, messages: dict[Turn, Any]) -> Exchange:
    exchange = Exchange()
    while exchange.turn is not turn:
        exchange.sent(RULES[exchange.turn].sender, messages[exchange.turn])
    return exchange


def test_the_table_is_metadata_once_then_infer_action_feedback() -> None:
    assert {turn: (rule.sender, rule.then) for turn, rule in RULES.items()} == {
        Turn.METADATA: (Role.SERVER, Turn.INFER),
        Turn.INFER: (Role.CLIENT, Turn.ACTION),
        Turn.ACTION: (Role.SERVER, Turn.FEEDBACK),
        Turn.FEEDBACK: (Role.CLIENT, Turn.INFER),
    }


@pytest.mark.parametrize("turn", list(Turn))
@pytest.mark.parametrize("kind", list(Turn))
@pytest.mark.parametrize("sender", list(Role))
def test_only_the_table_row_is_accepted_and_the_type_says_who_erred(
    turn: Turn, kind: Turn, sender: Role, messages: dict[Turn, Any]
) -> None:
    right = kind is turn and sender is RULES[turn].sender
    for error in (LocalProtocolError, RemoteProtocolError):
        exchange = at_turn(turn, messages)
        step = exchange.sent if error is LocalProtocolError else exchange.received
        if right:
            step(sender, messages[kind])
            assert exchange.turn is RULES[turn].then
            continue
        holders = set(exchange.holders)
        with pytest.raises(error) as caught:
            step(sender, messages[kind])
        expected = "4.1 exchange/metadata-first" if turn is Turn.METADATA else "4.2 exchange/alternation"
        assert caught.value.clause == expected
        assert turn.value in caught.value.detail
        assert (exchange.turn, exchange.holders) == (turn, holders)


def test_two_infers_in_a_row(messages: dict[Turn, Any]) -> None:
    exchange = at_turn(Turn.INFER, messages)
    exchange.received(Role.CLIENT, messages[Turn.INFER])
    with pytest.raises(RemoteProtocolError, match="expected action from the server, got infer from the client"):
        exchange.received(Role.CLIENT, messages[Turn.INFER])


def test_envs_hold_an_action_from_the_action_to_their_feedback(infer: Make, action: Make, feedback: Make) -> None:
    exchange = Exchange()
    exchange.sent(Role.SERVER, Metadata({}))
    exchange.received(Role.CLIENT, infer([3, 1, 7]))
    assert exchange.holders == set()
    exchange.sent(Role.SERVER, action([3, 1, 7]))
    assert exchange.holders == {1, 3, 7}
    exchange.received(Role.CLIENT, feedback([1]))
    assert exchange.holders == {3, 7}
    exchange.received(Role.CLIENT, infer([1]))
    exchange.sent(Role.SERVER, action([1]))
    exchange.received(Role.CLIENT, feedback([7, 1]))  # sets need not be equal (4.3)
    assert exchange.holders == {3}
    assert exchange.unheld == frozenset()


def test_lesson_4_feedback_for_an_env_that_holds_none_is_reported_not_refused(
    messages: dict[Turn, Any], feedback: Make
) -> None:
    exchange = at_turn(Turn.FEEDBACK, messages)
    exchange.received(Role.CLIENT, feedback([1, 9, 5]))
    assert exchange.unheld == {5, 9}
    assert (exchange.turn, exchange.holders) == (Turn.INFER, {3})


def test_who_held_none_is_known_of_the_last_feedback_only(messages: dict[Turn, Any], feedback: Make) -> None:
    exchange = at_turn(Turn.FEEDBACK, messages)
    exchange.received(Role.CLIENT, feedback([1, 3, 9]))
    assert exchange.unheld == {9}
    for turn in (Turn.INFER, Turn.ACTION, Turn.FEEDBACK):
        exchange.received(RULES[turn].sender, messages[turn])
    assert exchange.unheld == frozenset()


def test_lesson_4_a_replayed_feedback_holds_nothing(messages: dict[Turn, Any], infer: Make, action: Make) -> None:
    exchange = at_turn(Turn.FEEDBACK, messages)
    exchange.received(Role.CLIENT, messages[Turn.FEEDBACK])
    exchange.received(Role.CLIENT, infer([8]))
    exchange.sent(Role.SERVER, action([8]))
    exchange.received(Role.CLIENT, messages[Turn.FEEDBACK])
    assert exchange.unheld == {1, 3}


def test_who_holds_an_action_is_known_whether_or_not_anyone_asks(infer: Make, action: Make, feedback: Make) -> None:
    """A feedback that names those who were just answered, in another order, in part, and again."""
    exchange = Exchange()
    exchange.received(Role.SERVER, Metadata({}))
    unheld = []
    for asked, reported in (([1, 3], [3, 1]), ([1, 3], [1, 3]), ([1, 3], [1]), ([1], [3]), ([5], [1, 3]), ([3], [5])):
        exchange.sent(Role.CLIENT, infer(asked))
        exchange.received(Role.SERVER, action(asked))
        exchange.received(Role.CLIENT, feedback(reported))
        unheld.append(set(exchange.unheld))
    assert unheld == [set(), set(), set(), set(), {3}, set()]
    assert exchange.holders == {3}


def test_our_own_feedback_for_an_env_that_holds_none_never_leaves(messages: dict[Turn, Any], feedback: Make) -> None:
    exchange = at_turn(Turn.FEEDBACK, messages)
    with pytest.raises(LocalProtocolError, match="env 9 holds no action on this connection") as caught:
        exchange.sent(Role.CLIENT, feedback([1, 9]))
    assert caught.value.clause == "7.6 feedback/held"
    assert (exchange.turn, exchange.holders) == (Turn.FEEDBACK, {1, 3})


@pytest.mark.parametrize(
    ("env_ids", "clause"),
    [([1, 3], "4.3 action/env-ids"), ([3, 2], "4.3 action/env-ids"), ([3], "5.3 action/shape")],
)
def test_env_ids_are_the_infers_env_indices_in_their_order(
    env_ids: list[int], clause: str, messages: dict[Turn, Any], action: Make
) -> None:
    for error, step in ((LocalProtocolError, Exchange.sent), (RemoteProtocolError, Exchange.received)):
        exchange = at_turn(Turn.ACTION, messages)
        with pytest.raises(error) as caught:
            step(exchange, Role.SERVER, action(env_ids))
        assert caught.value.clause == clause
        assert (exchange.turn, exchange.holders) == (Turn.ACTION, set())


def test_a_client_bears_with_missing_env_ids_a_server_of_ours_never_leaves_them_out(
    messages: dict[Turn, Any], action: Make
) -> None:
    exchange = at_turn(Turn.ACTION, messages)
    exchange.received(Role.SERVER, action([3, 1], env_ids=None))
    assert exchange.holders == {1, 3}
    with pytest.raises(ProtocolError) as caught:
        at_turn(Turn.ACTION, messages).sent(Role.SERVER, action([3, 1], env_ids=None))
    assert type(caught.value) is LocalProtocolError


def test_the_callers_index_buffer_may_be_reused(messages: dict[Turn, Any], infer: Make, action: Make) -> None:
    exchange = at_turn(Turn.INFER, messages)
    indices = np.array([3, 1])
    exchange.sent(Role.CLIENT, infer([3, 1], env_indices=indices))
    indices[:] = 0
    exchange.received(Role.SERVER, action([3, 1]))
    assert exchange.holders == {1, 3}
