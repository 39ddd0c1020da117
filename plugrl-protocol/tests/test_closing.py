"""SPEC 7: codes, reasons and reactions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_protocol import closing
from plugrl_protocol.closing import Close, Reaction, complain, reaction, reject


def test_codes_and_reasons_are_those_of_the_wire() -> None:
    assert Close(1001, "plugrl-server-stop") == closing.STOP
    assert Close(1001, "plugrl-server-resync") == closing.RESYNC
    assert Close(1001, "Feedback timeout") == closing.FEEDBACK_TIMEOUT
    assert Close(1011, "Internal server error.") == closing.INTERNAL_ERROR
    assert Close(1000, "") == closing.DONE
    assert closing.TOO_BIG.code == 1009
    assert closing.UNRESPONSIVE.code == 1011


@pytest.mark.parametrize(
    ("close", "expected"),
    [
        (Close(1000), Reaction.RECONNECT),
        (Close(1006), Reaction.RECONNECT),
        (closing.INTERNAL_ERROR, Reaction.RECONNECT),
        (closing.FEEDBACK_TIMEOUT, Reaction.RECONNECT),
        (Close(1001, "anything else"), Reaction.RECONNECT),
        (closing.RESYNC, Reaction.RECONNECT),
        (closing.STOP, Reaction.END),
        (Close(1000, "plugrl-server-stop"), Reaction.RECONNECT),
        (Close(1008, "plugrl-server-reject: action_dim 3, this run has 6"), Reaction.FATAL),
        (Close(1008, "any reason"), Reaction.FATAL),
        (Close(1009), Reaction.FATAL),
        (closing.TEXT_FRAME, Reaction.FATAL),
        (Close(1002), Reaction.RECONNECT),
        (Close(4000), Reaction.RECONNECT),
    ],
)
def test_reaction_to_each_close(close: Close, expected: Reaction) -> None:
    assert reaction(close) is expected


def test_reject_names_both_sides_after_the_prefix() -> None:
    assert reject("action_dim 3, this run has 6") == Close(1008, "plugrl-server-reject: action_dim 3, this run has 6")


@given(st.text(max_size=300))
def test_reasons_fit_a_close_frame_and_keep_characters_whole(detail: str) -> None:
    for close, prefix in ((reject(detail), "plugrl-server-reject: "), (complain(detail), "")):
        raw = close.reason.encode()
        assert len(raw) <= 123
        whole = (prefix + detail).encode("utf-8", "replace").decode()
        assert whole.startswith(close.reason)
        if close.reason != whole:  # cut: not one character more would have fitted
            assert len(raw) + len(whole[len(close.reason)].encode()) > 123


def test_a_close_reads_well() -> None:
    assert str(closing.STOP) == "1001 plugrl-server-stop"
    assert str(closing.DONE) == "1000"
