"""An observation that does not fit the policy is its client's fault, and named (lessons 2, 3 and 28)."""

from types import SimpleNamespace

import numpy as np
import pytest
from plugrl_protocol.closing import RESYNC
from plugrl_protocol.errors import RemoteProtocolError
from plugrl_protocol.observation import Observation
from plugrl_server.learning import trees
from plugrl_server.serving.connection.observations import (
    WIDE_TEXT,
    ObservationReader,
    find_not_finite,
    finite_rows,
    not_finite_key,
)


def reader(state_keys=None, image_keys=None, complaint=None):
    return ObservationReader(
        SimpleNamespace(state_keys=state_keys, image_keys=image_keys, check_observation=lambda obs: complaint)
    )


def observation(states=None, images=None, n=2):
    widths = {"obs": 3} if states is None else states
    return Observation(
        images={name: np.zeros((n, *shape), np.uint8) for name, shape in (images or {}).items()},
        states={name: np.zeros((n, width)) for name, width in widths.items()},
        text=[""] * n,
    )


def refusal(reader, observation, known=None):
    with pytest.raises(RemoteProtocolError) as refused:
        reader.read(observation, "infer.data", known)
    assert refused.value.close == RESYNC
    return str(refused.value)


def test_only_what_the_policy_reads_is_kept():
    reading = reader(("obs",), ()).read(observation({"obs": 3, "extra": 5}, {"cam": (4, 4, 3)}), "infer.data", None)
    assert set(reading.obs["states"]) == {"obs"}
    assert reading.obs["images"] == {}
    assert reading.layout == (("states", "obs", (3,)),)


def test_a_policy_that_names_no_keys_reads_all_of_them():
    reading = reader().read(observation({"b": 1, "a": 2}, {"cam": (4, 4, 3)}), "infer.data", None)
    assert reading.layout == (("images", "cam", (4, 4, 3)), ("states", "a", (2,)), ("states", "b", (1,)))


def test_a_missing_key_is_named_with_what_there_is():
    text = refusal(reader(("position",), ()), observation({"obs": 3, "goal": 2}))
    assert text == "infer.data.states: this run's policy reads 'position', got goal, obs"


def test_the_policy_has_a_say():
    assert refusal(reader(complaint="too dark"), observation()) == "infer.data: too dark"


def test_the_first_observation_of_the_run_fixes_widths():
    run = reader(("obs",), ("cam",))
    run.read(observation({"obs": 3}, {"cam": (4, 4, 3)}), "infer.data", None)
    assert refusal(run, observation({"obs": 4}, {"cam": (4, 4, 3)})) == (
        "infer.data.states.obs: expected [n,3] as everywhere in this run, got [n,4]"
    )
    assert "images.cam: expected [n,4,4,3] as everywhere in this run, got [n,5,4,3]" in refusal(
        run, observation({"obs": 3}, {"cam": (5, 4, 3)})
    )


def test_a_refused_observation_fixes_nothing():
    run = reader()
    first = run.read(observation({"a": 3}), "infer.data", None)
    refusal(run, observation({"a": 4, "b": 1}))
    run.read(observation({"a": 3, "b": 2}), "infer.data", None)
    assert first.layout == (("states", "a", (3,)),)


def test_a_connection_keeps_to_the_keys_it_began_with():
    run = reader()
    first = run.read(observation({"a": 3}), "infer.data", None)
    run.read(observation({"b": 3}), "infer.data", None)  # another connection may have other keys
    assert refusal(run, observation({"b": 3}), first.layout) == (
        "infer.data: expected the keys this connection began with (states.a), got states.b"
    )


def numbers(*rows):
    return {"states": {"whole": np.zeros((len(rows), 1), np.int32), "obs": np.array(rows, float)}}


def test_the_first_row_that_is_not_finite_is_found():
    assert find_not_finite(numbers([0, 1], [2, 3])) is None
    assert find_not_finite(numbers([0, 1], [2, np.inf], [np.nan, 0])) == (1, "states.obs")


def test_feedback_rows_that_are_not_finite_are_marked():
    obs = numbers([0, 1], [2, np.nan], [4, 5])
    rewards = np.array([np.inf, 1, 2], np.float32)
    assert finite_rows(obs, rewards).tolist() == [False, False, True]
    assert finite_rows(numbers([0, 1]), rewards[1:2]) is None
    assert not_finite_key(obs, rewards, 0) == "rewards"
    assert not_finite_key(obs, rewards, 1) == "obs.states.obs"


def test_a_very_long_text_is_not_laid_out_as_wide_as_it_is():
    """Lesson 2: joined with many rows of other clients it would take all memory."""
    long, short = "x" * (WIDE_TEXT + 1), "y" * WIDE_TEXT
    texts = [
        reader().read(Observation({}, {"a": np.zeros((1, 1))}, [text]), "infer.data", None) for text in (long, short)
    ]

    assert [reading.obs["text"].dtype.kind for reading in texts] == ["O", "U"]
    joined = trees.concat([reading.obs for reading in texts])["text"]
    assert joined.nbytes == 2 * np.dtype(object).itemsize
    assert joined.tolist() == [long, short]
