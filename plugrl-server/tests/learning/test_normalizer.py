"""The running normaliser (rule 5)."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plugrl_server.learning.normalizer import CLIP, RunningNormalizer


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(0, 2**31))
def test_parts_add_up_to_the_whole(sizes, seed):
    vectors = torch.randn((sum(sizes), 3), generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 5 + 40
    normalizer = RunningNormalizer((3,))
    for part in vectors.split(sizes):
        normalizer.update(part)
    assert normalizer.count == len(vectors)
    if len(vectors):
        torch.testing.assert_close(normalizer.mean, vectors.mean(0))
        torch.testing.assert_close(normalizer.variance, vectors.var(0, correction=0))


def test_before_the_first_update_it_only_clips():
    assert RunningNormalizer((2,))(torch.tensor([[3.0, -99.0]])).tolist() == [[3, -CLIP]]


def test_normalised_vectors_have_mean_0_and_variance_1_and_are_clipped_at_10():
    vectors = torch.randn(1000, 2) * 7 + 3
    normalizer = RunningNormalizer((2,))
    normalizer.update(vectors)
    normal = normalizer(vectors)
    torch.testing.assert_close(normal.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(normal.std(0, correction=0), torch.ones(2), atol=1e-4, rtol=0)
    assert normalizer(torch.tensor([[1e6, -1e6]])).tolist() == [[CLIP, -CLIP]]


def test_arrays_are_normalised_in_place_by_the_same_numbers():
    normalizer = RunningNormalizer((2,))
    normalizer.update(torch.randn(50, 2) * 3 + 1)
    vectors = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32) * 100
    expected = normalizer(torch.from_numpy(vectors.copy()))
    normalizer.normalize_array(vectors)
    np.testing.assert_array_equal(vectors, expected.numpy())


def test_a_constant_input_does_not_divide_by_zero():
    normalizer = RunningNormalizer((1,))
    normalizer.update(torch.full((10, 1), 4.0))
    assert normalizer(torch.tensor([[4.0]])).tolist() == [[0.0]]


def test_rescaling_divides_by_the_deviation_without_centring():
    normalizer = RunningNormalizer(())
    normalizer.update(torch.tensor([10.0, 14.0]))
    torch.testing.assert_close(normalizer.rescale(torch.tensor([3.0, 1000.0])), torch.tensor([1.5, CLIP]))


def test_state_round_trips_with_the_count_and_goes_on_from_there():
    first, second = RunningNormalizer((2,)), RunningNormalizer((2,))
    first.update(torch.randn(20, 2))
    second.load_state_dict(first.state_dict())
    assert second.count == 20
    vectors = torch.randn(4, 2)
    assert torch.equal(first(vectors), second(vectors))
    first.update(vectors)
    second.update(vectors)
    assert torch.equal(first.variance, second.variance)


def test_a_cast_of_the_module_around_it_leaves_the_statistics_in_float64():
    model = torch.nn.ModuleDict({"normalizer": RunningNormalizer((2,)), "layer": torch.nn.Linear(2, 2)})
    model["normalizer"].update(torch.randn(1000, 2))
    model.to(torch.bfloat16)
    assert model["layer"].weight.dtype == torch.bfloat16
    assert model["normalizer"].count.dtype == torch.float64
    assert model["normalizer"].count == 1000


def test_it_names_itself():
    assert repr(RunningNormalizer((3,))) == "RunningNormalizer(shape=(3,), clip=10.0)"


@pytest.mark.parametrize("empty", [torch.zeros(0, 2)])
def test_nothing_changes_nothing(empty):
    normalizer = RunningNormalizer((2,))
    normalizer.update(empty)
    assert normalizer.count == 0
