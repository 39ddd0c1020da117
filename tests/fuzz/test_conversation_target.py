import conversation_target
import corpus
import pytest
from conversation_target import LONGEST, End, Options, read_script, run, write_script
from hypothesis import given
from hypothesis import strategies as st
from plugrl_protocol.connection import Turn
from plugrl_protocol.exchange import RULES, Exchange
from plugrl_protocol.reuse import HeldObservations

SCRIPTS = corpus.load("conversation")
FRAMES = st.lists(st.tuples(st.booleans(), st.binary(max_size=20)), max_size=4)


@given(st.integers(0, 15).map(Options), FRAMES)
def test_a_script_says_what_was_written(options, frames):
    assert read_script(write_script(options, frames)) == (options, frames)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_script_that_ends_in_some_turn(script):
    assert run(script).partition(":")[0] in {turn.value for turn in Turn}


def test_the_longest_frame_fits():
    frame = b"x" * LONGEST
    assert read_script(write_script(Options(0), [(True, frame)]))[1] == [(True, frame)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_of_the_corpus_keeps_the_promises(name):
    assert run(SCRIPTS[name])


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("server", "action: open"),
        ("server-reuse", "action: open"),
        ("server-declared", "action: open"),
        ("server-unheld", "action: open"),
        ("client", "feedback: open"),
        ("client-small", "feedback: open"),
    ],
)
def test_whole_exchanges_are_played_to_their_end(name, end):
    assert run(SCRIPTS[name]) == end


def test_without_our_own_messages_the_peer_is_out_of_turn():
    options, frames = read_script(SCRIPTS["server"])
    assert (
        run(write_script(options, [(False, frame) for _, frame in frames])) == "metadata: 4.1 exchange/metadata-first"
    )
    again = [frames[0], (False, frames[0][1])]
    assert run(write_script(options, again)) == "action: 4.2 exchange/alternation"


def test_a_small_end_refuses_what_is_too_large_for_it():
    options, frames = read_script(SCRIPTS["server"])
    large = frames[0][1] + bytes(600)
    assert run(write_script(options | Options.SMALL, [(True, large)])) == "infer: 1.1 framing/size"


def test_a_message_that_is_not_due_and_taken_is_a_finding(monkeypatch):
    take = Exchange._take

    def take_whenever(exchange, sender, message, error):
        exchange._rule = next(rule for rule in RULES.values() if rule.message is type(message))
        take(exchange, exchange._rule.sender, message, error)

    monkeypatch.setattr(Exchange, "_take", take_whenever)
    options, frames = read_script(SCRIPTS["server"])
    with pytest.raises(AssertionError, match="Feedback was taken, Infer was due"):
        run(write_script(options, [frames[0], frames[1], (True, frames[1][1])]))
    with pytest.raises(AssertionError, match="Infer was taken when it was our turn"):
        run(write_script(options, [frames[0], (False, frames[0][1])]))


def test_a_turn_that_goes_on_after_a_refusal_is_a_finding(monkeypatch):
    monkeypatch.setattr(End, "send_what_is_due", lambda end: setattr(end, "turn", Turn.INFER))
    with pytest.raises(AssertionError, match=r"Turn\.METADATA instead of Turn\.INFER"):
        run(write_script(Options(0), [(True, b"")]))


def test_an_infer_that_is_not_completed_is_a_finding(monkeypatch):
    monkeypatch.setattr(HeldObservations, "complete", lambda _, infer: infer)
    with pytest.raises(AssertionError, match="an infer was not completed"):
        run(SCRIPTS["server-reuse"])


def test_an_end_that_forgets_its_refusal_is_a_finding(monkeypatch):
    right = conversation_target.Connection.receive

    def forgetful(connection, frame, now):
        connection._failure = None
        return right(connection, frame, now)

    monkeypatch.setattr(conversation_target.Connection, "receive", forgetful)
    with pytest.raises(AssertionError, match="not the same refusal again"):
        run(write_script(Options(0), [(True, b"")]))
