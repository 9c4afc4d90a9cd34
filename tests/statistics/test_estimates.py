import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from unbraid import statistics
from unbraid.statistics import Difference, Estimate, estimate, paired_difference

numbers = st.floats(-1e6, 1e6)


def by_seed(values):
    return {str(seed): float(value) for seed, value in enumerate(values)}


@pytest.fixture
def fewer_resamples(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)


def test_with_five_seeds_the_interval_covers_the_truth_about_as_often_as_it_says(fewer_resamples):
    """Of 1000 samples of five normal values with mean 3; the plain percentile bootstrap stays near 83 %."""
    rng, trials = np.random.default_rng(1), 1000
    ours = plain = 0
    for values in rng.normal(3, 2, (trials, 5)):
        low, high = estimate(values.tolist()).interval
        ours += low <= 3 <= high
        bootstrap = stats.bootstrap((values,), np.mean, n_resamples=300, method="percentile", rng=rng, vectorized=True)
        plain += bootstrap.confidence_interval.low <= 3 <= bootstrap.confidence_interval.high
    assert 0.90 <= ours / trials <= 0.98
    assert ours / trials > plain / trials + 0.05


def test_the_interval_is_scipys_percentile_bootstrap_at_a_widened_level():
    """Hesterberg (2015): tails of Φ(-√(n/(n-1)) t) instead of 2.5 %."""
    values = np.random.default_rng(7).exponential(1, 8)
    tail = stats.norm.cdf(-np.sqrt(8 / 7) * stats.t.ppf(0.975, 7))
    rng = np.random.default_rng(8)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=100_000, confidence_level=1 - 2 * tail, method="percentile", rng=rng
    ).confidence_interval
    np.testing.assert_allclose(
        estimate(values.tolist()).interval, tuple(expected), atol=0.1 * values.std() / np.sqrt(8)
    )


def test_with_many_seeds_the_interval_is_that_of_student():
    values = np.random.default_rng(2).normal(0, 1, 200)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(estimate(values.tolist()).interval, tuple(expected), atol=0.02)


@given(st.lists(numbers, min_size=2, max_size=8))
def test_the_interval_lies_within_the_values_and_contains_their_mean(values):
    found = estimate(values)
    slack = 1e-9 * (1 + max(map(abs, values)))
    assert found.value == pytest.approx(np.mean(values))
    assert min(values) - slack <= found.interval[0] <= found.value + slack
    assert found.value - slack <= found.interval[1] <= max(values) + slack


def test_equal_values_leave_no_doubt():
    assert estimate([0.25] * 5) == Estimate(0.25, (0.25, 0.25))


def test_more_spread_and_fewer_values_widen_the_interval():
    def width(values):
        low, high = estimate(values).interval
        return high - low

    base = np.random.default_rng(3).normal(0, 1, 5).tolist()
    assert width([2 * value for value in base]) == pytest.approx(2 * width(base))
    assert width(base * 4) < width(base)


def test_a_single_value_has_no_interval_and_none_has_no_value():
    assert estimate([0.5]) == Estimate(0.5, None)
    assert np.isnan(estimate([]).value)
    assert estimate([]).interval is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_have_no_interval(bad):
    assert estimate([1.0, bad, 2.0]).interval is None


def test_the_same_values_always_give_the_same_interval():
    values = np.random.default_rng(4).normal(0, 1, 5).tolist()
    assert estimate(values) == estimate(values)


def test_a_paired_difference_removes_what_seeds_have_in_common():
    """Seeds differ wildly, the settings by exactly 0.1 in each: unpaired nothing could be said."""
    reference = by_seed(np.random.default_rng(5).normal(0, 100, 5))
    ours = {seed: value + 0.1 for seed, value in reversed(reference.items())}
    found = paired_difference(ours, reference)
    assert found.estimate.value == pytest.approx(0.1)
    np.testing.assert_allclose(found.estimate.interval, 0.1, rtol=1e-9)
    assert (found.pairs, found.verdict) == (5, "higher")
    assert paired_difference(reference, ours).verdict == "lower"


def test_only_shared_seeds_are_compared():
    found = paired_difference({"0": 1.0, "1": 2.0, "2": 9.0}, {"1": 1.5, "2": 8.5, "7": 100.0})
    assert found.pairs == 2
    assert found.estimate.value == pytest.approx(0.5)


def test_without_shared_seeds_nothing_is_decided():
    found = paired_difference({"0": 1.0}, {"1": 2.0})
    assert (found.pairs, found.verdict) == (0, "undecided")


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.1, 0.2), "higher"),
        ((-0.2, -0.1), "lower"),
        ((-0.1, 0.1), "undecided"),
        ((0.0, 0.1), "undecided"),
        (None, "undecided"),
    ],
)
def test_a_verdict_needs_an_interval_that_excludes_zero(interval, verdict):
    assert Difference(Estimate(0.0, interval), 5).verdict == verdict


def test_no_difference_is_seldom_called_one(fewer_resamples):
    rng, trials = np.random.default_rng(6), 500
    pairs = rng.normal(size=(trials, 2, 5))
    called = sum(paired_difference(by_seed(a), by_seed(b)).verdict != "undecided" for a, b in pairs)
    assert called / trials < 0.1


def test_fewer_than_five_pairs_decide_nothing():
    assert Difference(Estimate(0.5, (0.4, 0.6)), 4).verdict == "undecided"
