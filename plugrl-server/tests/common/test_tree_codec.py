"""Trees round-trip with their types, and anything else is refused with its path (lesson 20)."""

import collections
import json
import math
import pathlib

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plugrl_server.common.tree_codec import MAX_DEPTH, TreeCodecError, decode, encode

TENSOR_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]


def round_trip(tree):
    encoded, tensors = encode(tree, "tree")
    return decode(json.loads(json.dumps(encoded, allow_nan=False)), tensors, "tree")


def same(left, right):
    """Equality that looks at types, dtypes and NaN as well."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and left.shape == right.shape and raw(left) == raw(right)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    return left == right or (left != left and right != right)


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    return torch.zeros(shape).add_(draw(st.integers(0, 1))).to(draw(st.sampled_from(TENSOR_DTYPES)))


arrays = hnp.arrays(
    hnp.boolean_dtypes()
    | hnp.integer_dtypes()
    | hnp.unsigned_integer_dtypes()
    | hnp.floating_dtypes(endianness="?")
    | hnp.complex_number_dtypes()
    | hnp.unicode_string_dtypes(max_len=5),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=3),
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | tensors() | arrays
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(trees)
def test_every_allowed_tree_round_trips_with_its_types(tree):
    assert same(round_trip(tree), tree)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, -0.0, 5e-324, 0.1, 2**200, "\ud800", "é\0"])
def test_scalars_that_json_is_bad_at_round_trip(value):
    assert same(round_trip({"value": value}), {"value": value})


def test_true_is_not_one_and_an_int_key_is_not_a_text():
    restored = round_trip({1: True, "1": 1})
    assert restored[1] is True
    assert type(restored["1"]) is int


def test_adam_with_groups_round_trips():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW([{"params": [model.weight], "lr": 0.1}, {"params": [model.bias]}], lr=0.2)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    restored = round_trip(optimizer.state_dict())
    other = torch.optim.AdamW([{"params": [model.weight], "lr": 0.1}, {"params": [model.bias]}], lr=0.2)
    other.load_state_dict(restored)
    assert same(round_trip(other.state_dict()), restored)


def test_tied_tensors_are_stored_once_and_come_back_tied():
    embedding = torch.nn.Linear(4, 3, bias=False)
    head = torch.nn.Linear(4, 3, bias=False)
    head.weight = embedding.weight
    state = torch.nn.ModuleDict({"in": embedding, "out": head}).state_dict()
    encoded, tensors = encode(state, "model")
    assert len(tensors) == 1
    restored = decode(encoded, tensors, "model")
    assert restored["in.weight"] is restored["out.weight"]


def test_different_views_of_one_memory_are_stored_apart():
    flat = torch.arange(6.0)
    restored = round_trip({"all": flat, "head": flat[:2], "column": flat.view(2, 3)[:, 1], "wide": flat.view(2, 3)})
    assert restored["head"].tolist() == [0, 1]
    assert restored["column"].tolist() == [1, 4]
    assert restored["wide"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_empty_tensors_are_never_tied():
    first, second = round_trip([torch.empty(0), torch.empty(0)])
    assert first is not second


def test_a_parameter_is_stored_as_its_tensor():
    restored = round_trip(torch.nn.Parameter(torch.ones(2)))
    assert type(restored) is torch.Tensor
    assert not restored.requires_grad


def test_restored_arrays_are_writable_and_alias_nothing():
    restored = round_trip([np.ones(3), np.ones(3)])
    restored[0][:] = 2
    assert restored[1].tolist() == [1, 1, 1]


Pair = collections.namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (np.float64(1.0), "numpy.float64"),
        (np.int64(1), "numpy.int64"),
        ({1, 2}, "builtins.set"),
        (b"raw", "builtins.bytes"),
        (pathlib.PurePosixPath("x"), "PurePosixPath"),
        (1j, "builtins.complex"),
        (Pair(1, 2), "Pair"),
        (lambda: None, "function"),
        (torch.float32, "torch.dtype"),
        (torch.ones(2, 2).to_sparse(), "only dense tensors"),
        (torch.ones(1, device="meta"), "only dense tensors"),
        (np.array([object()]), "dtype object"),
        (np.array(["2020-01-01"], "M8[D]"), "datetime64"),
    ],
)
def test_anything_else_is_refused_with_its_path(value, named):
    with pytest.raises(TreeCodecError, match=r"^meta\.schedule\[1\]\.x: ") as error:
        encode({"schedule": [0, {"x": value}]}, "meta")
    assert named in str(error.value)


@pytest.mark.parametrize("key", [1.5, None, (1, 2), True])
def test_other_keys_are_refused(key):
    with pytest.raises(TreeCodecError, match=r"^meta\.a: key .* keys must be str or int"):
        encode({"a": {key: 1}}, "meta")


def test_a_tree_that_contains_itself_is_refused():
    tree = []
    tree.append(tree)
    with pytest.raises(TreeCodecError, match=f"deeper than {MAX_DEPTH} levels"):
        encode(tree, "meta")


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        [],
        {"pickle": "x"},
        {"tensor": "gone"},
        {"ndarray": "gone", "dtype": "<f4", "shape": [1]},
        {"dict": 3},
        {"dict": [["a"]]},
        {"float": "much"},
        {"ndarray": "t", "dtype": "|O", "shape": [1]},
        {"ndarray": "t", "dtype": "<f4", "shape": [7]},
    ],
)
def test_damaged_data_is_refused_with_its_path(damaged):
    with pytest.raises(TreeCodecError, match=r"^meta\.a: "):
        decode({"dict": [["a", damaged]]}, {"t": torch.zeros(4, dtype=torch.uint8)}, "meta")
