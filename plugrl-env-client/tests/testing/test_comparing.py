"""Where two observations differ, and how it is said."""

from unittest import SkipTest

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import Observation
from plugrl_env_client.testing.comparing import (
    ContractBroken,
    copied,
    difference,
    expect,
    layout,
    row_difference,
    skip,
)


def observed(value=0.0, text="a"):
    return Observation(
        {"eye": np.zeros((2, 3, 4, 1), np.uint8)}, {"at": np.array([[1.0, value], [2.0, 3.0]])}, [text, "b"]
    )


def test_a_broken_clause_is_a_failed_assertion_with_its_text():
    expect(True, "never said")
    with pytest.raises(ContractBroken, match="what was found"):
        expect(0, "what was found")
    assert issubclass(ContractBroken, AssertionError)


def test_a_check_is_left_out_with_its_reason():
    with pytest.raises(SkipTest, match="no seed"):
        skip("no seed")


def test_layout_ignores_values_and_the_length_of_texts():
    assert layout(observed()) == layout(observed(5.0, "longer"))
    assert layout(observed()) == {"images.eye": "uint8[3, 4, 1]", "states.at": "float64[2]", "text": "text"}


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (observed(), None),
        (observed(5.0), "states.at[0, 1]: 0.0 against 5.0"),
        (observed(text="c"), "text[0]: a against c"),
        (Observation({}, {}, ["a", "b"]), "entries ['images.eye', 'states.at', 'text'] against ['text']"),
        (observed().take([0]), "images.eye: shape [2, 3, 4, 1] against [1, 3, 4, 1]"),
    ],
)
def test_the_first_difference_is_told_by_place(other, says):
    assert difference(observed(), other) == says


def test_nan_equals_nan_only():
    assert difference(observed(np.nan), observed(np.nan)) is None
    assert difference(observed(np.nan), observed(1.0)) is not None
    assert difference(observed(1.0), observed(np.nan)) is not None


def test_rows_are_compared_across_observations():
    first, second = observed(), Observation(*(observed().take([1, 0]).to_wire().values()))
    assert row_difference(first, 0, second, 1) is None
    assert row_difference(first, 0, second, 0) is not None


def test_a_copy_keeps_what_the_original_loses():
    original = observed()
    kept = copied(original)
    original.states["at"][...] = 9
    original.images["eye"][...] = 9
    assert difference(kept, observed()) is None
