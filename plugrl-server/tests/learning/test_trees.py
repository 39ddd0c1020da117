"""Row operations on trees of arrays."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plugrl_server.learning import trees


def sample(rows):
    return {
        "images": {"wrist": np.arange(rows * 4, dtype=np.uint8).reshape(rows, 2, 2)},
        "pair": (np.arange(rows, dtype=np.float32), torch.arange(rows)),
        "nothing": None,
        "text": np.array([f"row {i}" for i in range(rows)]),
    }


def test_leading_is_the_number_of_rows_of_the_first_leaf():
    assert trees.leading(sample(3)) == 3
    assert trees.leading({"a": None, "b": [{}, np.zeros((2, 5))]}) == 2
    assert trees.leading(None) is None
    assert trees.leading({"a": {}}) is None


def test_take_keeps_structure_and_types_and_slices_are_views():
    tree = sample(4)
    taken = trees.take(tree, slice(1, 3))
    assert trees.leading(taken) == 2
    assert isinstance(taken["pair"], tuple)
    assert taken["nothing"] is None
    taken["pair"][0][0] = 50
    assert tree["pair"][0][1] == 50


@given(st.lists(st.integers(0, 4), max_size=6))
def test_what_is_put_is_what_is_taken(rows):
    store = trees.alloc_like(sample(5), 8)
    trees.put(store, slice(2, 7), sample(5))
    taken = trees.take(trees.take(store, slice(2, 7)), np.array(rows, np.int64))
    expected = trees.take(sample(5), np.array(rows, np.int64))
    trees.map_leaves(lambda got, wanted: np.testing.assert_array_equal(got, trees.as_numpy(wanted)), taken, expected)


def test_a_store_keeps_row_shapes_and_dtypes_uint8_too():
    store = trees.alloc_like(sample(1), 10)
    assert store["images"]["wrist"].dtype == np.uint8
    assert store["images"]["wrist"].shape == (10, 2, 2)
    assert store["pair"][1].dtype == np.int64


def test_concat_joins_arrays_and_tensors_and_passes_one_tree_through():
    joined = trees.concat([sample(2), sample(3)])
    assert trees.leading(joined) == 5
    assert isinstance(joined["pair"][1], torch.Tensor)
    one = sample(2)
    assert trees.concat([one]) is one
    with pytest.raises(ValueError, match="at least one tree"):
        trees.concat([])


@pytest.mark.parametrize(
    ("left", "right", "named"),
    [
        ({"a": np.zeros(1)}, {"b": np.zeros(1)}, r"keys \['a'\] against a dict with keys \['b'\]"),
        ([np.zeros(1)], [np.zeros(1), np.zeros(1)], "length 1 against a list of length 2"),
        ({"a": np.zeros(1)}, np.zeros(1), "against a ndarray"),
    ],
)
def test_trees_that_differ_are_refused_with_both_sides(left, right, named):
    with pytest.raises(ValueError, match=named):
        trees.concat([left, right])


def test_named_tuples_stay_named():
    from collections import namedtuple

    pair = namedtuple("pair", "a b")(np.zeros(2), np.ones(2))
    assert trees.take(pair, slice(1)).b.tolist() == [1]


def test_torch_is_not_imported():
    program = (
        "import sys, numpy; from plugrl_server.learning import trees; "
        "trees.take({'a': numpy.zeros(2)}, 0); trees.concat([[numpy.zeros(1)]] * 2); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_rows_grow_by_doubling_up_to_their_limit(monkeypatch):
    monkeypatch.setattr(trees, "FIRST_ROWS", 2)
    stored = trees.GrowingRows(limit=7)
    assert stored.tree is None
    allocated = []
    for row in range(7):
        stored.put(np.array([row]), {"image": np.full((1, 2), row, np.uint8)})
        allocated.append(trees.leading(stored.tree))
    assert allocated == [2, 2, 4, 4, 7, 7, 7]
    assert stored.rows()["image"].dtype == np.uint8
    assert stored.rows()["image"][:, 1].tolist() == list(range(7))


def test_rows_that_were_given_back_are_used_again():
    pool = trees.RowPool()
    assert pool.add(3, np.array([1, 2, 3])).tolist() == [0, 1, 2]
    pool.give_back(np.array([1, 0]))
    assert (pool.in_use, pool.used) == (1, 3)
    assert sorted(pool.add(3, np.array([4, 5, 6]))) == [0, 1, 3]
    assert sorted(pool.rows().tolist()) == [3, 4, 5, 6]
    assert pool.rows()[2] == 3
    assert pool.add(0, np.zeros(0)).tolist() == []


def test_a_pool_that_was_cleared_keeps_its_memory(monkeypatch):
    monkeypatch.setattr(trees, "FIRST_ROWS", 4)
    pool = trees.RowPool()
    pool.add(3, np.array([1, 2, 3]))
    pool.give_back(np.array([2]))
    memory = pool.tree
    pool.clear()
    assert (pool.in_use, len(pool.rows())) == (0, 0)
    assert pool.add(2, np.array([7, 8])).tolist() == [0, 1]
    assert pool.tree is memory
