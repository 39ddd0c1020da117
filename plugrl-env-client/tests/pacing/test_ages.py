"""Quantiles of ages, against NumPy's."""

import numpy as np
import pytest
from plugrl_env_client.pacing.ages import Ages


def ages_of(values):
    ages = Ages()
    for value in values:
        ages.add(value)
    return ages


def test_quantiles_are_right_within_a_percent():
    values = np.random.default_rng(0).lognormal(-3.0, 1.0, 5000)
    ages = ages_of(values)
    for share in (0.5, 0.95, 0.99):
        exact = np.quantile(values, share, method="inverted_cdf")
        assert ages.quantile(share) == pytest.approx(exact, rel=0.011)
    assert ages.quantile(1.0) == pytest.approx(values.max(), rel=0.011)
    assert ages.longest == values.max()


def test_no_quantile_is_above_the_longest():
    ages = ages_of([0.1001])
    assert ages.quantile(0.5) <= 0.1001


def test_without_ages_there_is_no_quantile():
    assert Ages().quantile(0.5) is None


def test_an_age_of_nothing_is_counted_too():
    assert ages_of([0.0, 0.0, 1.0]).quantile(0.5) < 1e-5


def test_memory_depends_on_the_spread_not_on_the_number():
    ages = ages_of(np.linspace(0.1, 0.2, 10_000))
    assert len(ages.bins) < 40


def test_together_and_a_copy_of_its_own():
    first, second = ages_of([0.1, 0.1, 0.1]), ages_of([0.5])
    both = Ages.together([first, second])
    assert (sum(both.bins.values()), both.longest) == (4, 0.5)
    assert both.quantile(0.5) == pytest.approx(0.1, rel=0.011)
    copy = first.copy()
    first.add(9.0)
    assert (sum(copy.bins.values()), copy.longest) == (3, 0.1)
