import corpus
import msgpack
import pytest
from conversation_target import LONGEST, read_script
from hypothesis import given
from hypothesis import strategies as st
from mutations import Mutator
from plugrl_protocol.codec import decode
from plugrl_protocol.errors import RemoteProtocolError

FRAMES, SCRIPTS = (list(corpus.load(target).values()) for target in ("frame", "conversation"))


def test_a_seed_always_makes_the_same():
    one, same, other = (Mutator(FRAMES, seed) for seed in (1, 1, 2))
    made = [one.frame() for _ in range(200)]
    assert made == [same.frame() for _ in range(200)]
    assert made != [other.frame() for _ in range(200)]
    assert [Mutator(SCRIPTS, 3).script()] == [Mutator(SCRIPTS, 3).script()]


def test_most_are_new_and_some_can_still_be_read():
    mutator = Mutator(FRAMES, 0)
    made = {mutator.frame() for _ in range(1_000)}
    assert len(made - {*FRAMES}) > 900

    def readable(frame):
        try:
            decode(frame)
        except RemoteProtocolError:
            return False
        return True

    assert 50 < sum(map(readable, made)) < 950


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=4), st.integers(0, 1_000))
def test_any_pool_will_do(pool, seed):
    mutator = Mutator(pool, seed)
    for _ in range(5):
        assert isinstance(mutator.frame(), bytes)
        assert isinstance(mutator.script(), bytes)


@pytest.mark.parametrize("value", [{}, [], {"a": {"b": [1, {"c": b"x"}]}}, {1: 2}, {None: [[]]}, [b"", -1, 0.5]])
def test_values_of_any_kind_are_edited(value):
    frame = msgpack.packb(value)
    mutator = Mutator([frame], 0)
    assert len({mutator.frame() for _ in range(200)}) > 50


def test_scripts_stay_scripts_of_frames_that_fit():
    mutator = Mutator(SCRIPTS, 0)
    for _ in range(500):
        _, frames = read_script(mutator.script())
        assert all(len(frame) <= LONGEST for _, frame in frames)
