"""What the contracts call equal, and how they say what is not."""

from collections import namedtuple
from unittest import SkipTest

import numpy as np
import pytest
import torch
from plugrl_server.testing.comparing import ContractBroken, difference, expect, layout, row_counts, skip


def test_expect_raises_the_text():
    expect([1], "no")
    with pytest.raises(ContractBroken, match="no") as caught:
        expect([], "no")
    assert isinstance(caught.value, AssertionError)


def test_skip_is_understood_by_pytest_and_unittest():
    with pytest.raises(SkipTest, match="why"):
        skip("why")


@pytest.mark.parametrize(
    "tree",
    [
        None,
        3,
        "text",
        float("nan"),
        np.array([1.0, np.nan]),
        torch.ones(2, dtype=torch.bfloat16),
        {"a": [1, (2, None)], "b": {"c": np.zeros((2, 3), bool)}},
    ],
)
def test_equal_trees_have_no_difference(tree):
    assert difference(tree, tree) is None


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({"a": 1}, {"a": 2}, "a: 1 against 2"),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "a.b[1]: 2 against 3"),
        ({"a": 1}, {"b": 1}, "the tree: keys ['a'] against ['b']"),
        ([1], [1, 2], "the tree: 1 against 2 items"),
        (1, None, "the value: 1 against None"),
        ("a", "b", "the value: 'a' against 'b'"),
        (True, 1, "the value: True against 1"),
        (np.zeros(2), np.zeros(3), "the value: ndarray[2] against ndarray[3]"),
        (torch.zeros(2), torch.ones(2), "the value: Tensor[2] against Tensor[2]"),
    ],
)
def test_the_first_difference_is_named_by_its_path(first, second, text):
    assert difference(first, second) == text


def test_lists_and_tuples_are_alike_as_in_a_checkpoint():
    assert difference([1, 2], (1, 2)) is None
    assert difference({"a": namedtuple("Pair", "x y")(1, 2)}, {"a": [1, 2]}) is None


def test_a_layout_is_what_a_buffer_is_sized_by():
    tree = {"a": np.zeros((5, 2), np.float32), "b": (torch.zeros(5, dtype=torch.int64), None)}
    assert layout(tree) == {"a": "float32[2]", "b": ("int64[]", None)}


def test_row_counts_name_every_leaf():
    tree = {"a": np.zeros((5, 2)), "b": [torch.zeros(4), None, 3.0], "c": {"d": np.float32(1)}}
    assert row_counts(tree) == {"a": 5, "b[0]": 4, "b[2]": None, "c.d": None}
    assert row_counts(np.zeros(3)) == {"the state": 3}
    assert row_counts(None) == {}
