"""An error says who erred, which clause, what is wrong, and how to close."""

import pickle

import pytest
from plugrl_protocol.closing import RESYNC, TOO_BIG
from plugrl_protocol.errors import (
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    blame_peer,
    printable,
    show_key,
)


def test_an_error_carries_clause_detail_and_close() -> None:
    error = RemoteProtocolError("5.4 feedback/rewards", "feedback.data.rewards: expected float[3], got float[3,1]")
    assert str(error) == error.detail == "feedback.data.rewards: expected float[3], got float[3,1]"
    assert (error.clause, error.close) == ("5.4 feedback/rewards", RESYNC)
    assert isinstance(error, ProtocolError)


def test_errors_survive_pickling_between_processes() -> None:
    error = pickle.loads(pickle.dumps(LocalProtocolError("1.1 framing/size", "too big", TOO_BIG)))
    assert type(error) is LocalProtocolError
    assert (error.clause, error.detail, error.close) == ("1.1 framing/size", "too big", TOO_BIG)


def test_blame_peer_turns_our_fault_into_the_peers() -> None:
    @blame_peer
    def parse(close: object) -> None:
        raise LocalProtocolError("1 a/b", "detail", TOO_BIG)

    with pytest.raises(RemoteProtocolError) as caught:
        parse(None)
    assert (caught.value.clause, caught.value.detail, caught.value.close) == ("1 a/b", "detail", TOO_BIG)


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("qpos", "qpos"),
        (b"data", "data"),
        (b"\xff\n", "\\xff\\n"),
        ("line\nbreak", "'line\\nbreak'"),
        ("k" * 1_000_000, repr("k" * 60)),
        (b"\0" * 1_000_000, repr("\\x00" * 15)),
    ],
)
def test_keys_of_a_peer_neither_flood_nor_break_a_log_line(key: str | bytes, shown: str) -> None:
    assert show_key(key) == shown


def test_what_a_peer_sent_neither_breaks_nor_fills_the_log() -> None:
    assert printable("states.Größe 'x': got [n,3]") == "states.Größe 'x': got [n,3]"
    assert printable("one\n12:00 ERROR two") == "one\\n12:00 ERROR two"
    assert printable("x" * 1_000_000) == "x" * 500 + "..."
