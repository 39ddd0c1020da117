"""Bootstrap intervals against cases that are known on paper."""

import math

import numpy as np
import pytest
from plugrl_server.algorithm.evaluation import bootstrap
from plugrl_server.algorithm.evaluation.bootstrap import RESAMPLES, estimate, resampled_means


def test_equal_values_leave_no_doubt():
    figures = estimate(np.full(7, 3.5))
    assert (figures.mean, figures.std, figures.low, figures.high, figures.count) == (3.5, 0, 3.5, 3.5, 7)


def test_one_value_is_all_that_is_known():
    figures = estimate(np.array([2.0]))
    assert (figures.mean, figures.std, figures.low, figures.high, figures.count) == (2, 0, 2, 2, 1)


def test_the_deviation_is_the_sample_s():
    assert estimate(np.array([1.0, 2.0, 3.0, 4.0])).std == pytest.approx(math.sqrt(5 / 3))


def test_means_of_two_values_are_three_with_binomial_shares():
    """Two draws from {0, 1}: the mean is 0, 1/2, 1 with 1/4, 1/2, 1/4."""
    means = resampled_means(np.array([0.0, 1.0]), seed=3)
    values, counts = np.unique(means, return_counts=True)
    assert values.tolist() == [0, 0.5, 1]
    np.testing.assert_allclose(counts / RESAMPLES, [0.25, 0.5, 0.25], atol=0.02)


def test_ends_are_quantiles_of_the_binomial_for_success_or_failure():
    """Ten of 20 succeed: successes of a resample are Binomial(20, 1/2), whose 2.5% and 97.5% quantiles are 6 and 14."""
    cumulative = np.cumsum([math.comb(20, k) / 2**20 for k in range(21)])
    assert (np.searchsorted(cumulative, 0.025), np.searchsorted(cumulative, 0.975)) == (6, 14)
    figures = estimate(np.repeat([0.0, 1.0], 10))
    assert (figures.low, figures.high) == (6 / 20, 14 / 20)


def test_for_many_values_it_is_the_normal_interval():
    values = np.random.default_rng(0).normal(5, 2, 400)
    figures = estimate(values, seed=1)
    half = 1.959964 * values.std() / 20
    assert figures.low == pytest.approx(values.mean() - half, abs=0.01)
    assert figures.high == pytest.approx(values.mean() + half, abs=0.01)
    narrower = estimate(values, level=0.5)
    assert figures.low < narrower.low < narrower.high < figures.high


def test_a_seed_repeats_itself_and_memory_is_bounded(monkeypatch):
    values = np.arange(9.0)
    assert estimate(values, seed=4) == estimate(values, seed=4)
    assert not np.array_equal(resampled_means(values, 4), resampled_means(values, 5))
    monkeypatch.setattr(bootstrap, "AT_ONCE", 7 * 9)
    assert resampled_means(values, 4).shape == (RESAMPLES,)
    monkeypatch.setattr(bootstrap, "AT_ONCE", 1)
    monkeypatch.setattr(bootstrap, "RESAMPLES", 5)
    assert resampled_means(values, 4).shape == (5,)
