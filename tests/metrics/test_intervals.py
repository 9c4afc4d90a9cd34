"""Intervals and paired differences over seeds, and their coverage.
Settings at equal L0: straight lines over log L0, whose means and differences are known in closed form.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from unbraid.errors import UserError
from unbraid.metrics import intervals
from unbraid.metrics.intervals import Difference, Estimate, Path, compare, estimate, paired_difference

numbers = st.floats(-1e6, 1e6)


def by_seed(values):
    return {str(seed): float(value) for seed, value in enumerate(values)}


@pytest.fixture
def fewer_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 1000)


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


E = float(np.e)


def line(offset, slope, l0):
    """A path on the line offset + slope · log L0."""
    return Path.through([(float(one), float(offset + slope * np.log(one))) for one in l0])


def test_between_points_the_score_is_a_straight_line_over_log_l0():
    path = Path.through([(E**3, 7.0), (E, 1.0)])
    assert path.at(E**2) == pytest.approx(4)
    assert path.at(E) == 1
    assert path.at(E**3) == 7


def test_beyond_its_ends_a_path_says_nothing():
    path = Path.through([(2.0, 0.5), (8.0, 0.7)])
    assert np.isnan(path.at(1.99))
    assert np.isnan(path.at(8.01))


def test_the_mean_is_the_integral_over_log_l0():
    """A tent over log L0 = 0, 1, 3 with heights 0, 2, 0: area 3 over length 3; over [1, 3] area 2 over 2."""
    path = Path.through([(1.0, 0.0), (E, 2.0), (E**3, 0.0)])
    assert path.mean(1.0, E**3) == pytest.approx(1)
    assert path.mean(E, E**3) == pytest.approx(1)
    assert path.mean(E**0.5, E) == pytest.approx(1.5)
    assert path.mean(E, E) == 2


def test_points_of_one_l0_are_their_mean_and_what_fires_nothing_is_no_point():
    assert Path.through([(4.0, 1.0), (2.0, 0.0), (4.0, 3.0), (0.0, 9.0), (3.0, np.nan)]) == Path((2.0, 4.0), (0.0, 2.0))
    with pytest.raises(UserError, match="none of 2 points"):
        Path.through([(0.0, 1.0), (5.0, np.inf)])


def test_a_constant_gap_is_found_whatever_l0_each_setting_was_trained_at():
    """The reference scores more at every strength, but only because it fires more: at equal L0 it is .1 below."""
    ours = {str(s): line(0.1 + 0.01 * s, 0.2, [2 + s, 7, 11 + s]) for s in range(5)}
    theirs = {str(s): line(0.01 * s, 0.2, [4, 10 + s, 40]) for s in range(5)}
    assert np.mean([max(path.score) for path in theirs.values()]) > np.mean([max(p.score) for p in ours.values()])
    found = compare(ours, theirs)
    assert (found.low, found.high) == (6, 11)
    assert found.difference.estimate.value == pytest.approx(0.1)
    assert found.difference.estimate.interval == pytest.approx((0.1, 0.1))
    assert found.difference.pairs == 5
    assert found.verdict == "higher"
    assert compare(theirs, ours).verdict == "lower"


def test_lines_that_cross_in_the_middle_do_not_differ_on_average():
    """Slopes ±1 about log L0 = 1, between 0 and 2: the mean difference is 0, at the ends it is ±2."""
    ours = {str(s): line(-1, 1, [1, E**2]) for s in range(5)}
    theirs = {str(s): line(1, -1, [1, E**2]) for s in range(5)}
    assert compare(ours, theirs).difference.estimate.value == pytest.approx(0)
    assert compare(ours, theirs).verdict == "undecided"
    assert compare(ours, theirs, at=1.0).difference.estimate.value == pytest.approx(-2)
    assert compare(ours, theirs, at=1.0).verdict == "lower"
    assert compare(ours, theirs, at=E**2).difference.estimate.value == pytest.approx(2)


def test_seeds_are_paired():
    """Seeds differ by up to 10, the settings by .1 in every seed: only pairing sees that."""
    ours = {str(s): line(0.1 + 2.5 * s, 0, [1, 9]) for s in range(5)}
    theirs = {str(s): line(2.5 * s, 0, [3, 30]) for s in range(5)}
    assert compare(ours, theirs).verdict == "higher"
    noisy = {str(s): line(2.5 * s + (-1) ** s, 0, [3, 30]) for s in range(5)}
    assert compare(ours, noisy).verdict == "undecided"


def test_without_an_l0_in_common_nothing_is_said_but_why():
    ours = {str(s): line(1, 0, [2, 5]) for s in range(5)}
    theirs = {str(s): line(0, 0, [8, 20]) for s in range(5)}
    found = compare(ours, theirs)
    assert (found.difference, found.verdict) == (None, "undecided")
    assert found.reason == "no L0 is on every path: 2 to 5 against 8 to 20"


def test_one_seed_elsewhere_is_enough_to_leave_it_open():
    ours = {"0": line(1, 0, [2, 5]), "1": line(1, 0, [6, 9])}
    found = compare(ours, {"0": line(0, 0, [1, 9]), "1": line(0, 0, [1, 9])})
    assert found.reason == "no L0 is on every path: none in common among the seeds against 1 to 9"


def test_an_l0_that_some_path_has_not_is_not_extrapolated_to():
    ours = {str(s): line(1, 0, [2, 5]) for s in range(5)}
    found = compare(ours, ours, at=5.5)
    assert (found.verdict, found.reason) == ("undecided", "L0 5.5 is not on every path: 2 to 5 against 2 to 5")


def test_settings_without_a_seed_in_common_and_with_too_few():
    path = line(1, 0, [2, 5])
    assert compare({"0": path}, {"1": path}).reason == "the two settings share no seed"
    four = {str(s): line(1, 0, [2, 5]) for s in range(4)}
    assert compare(four, {seed: line(0, 0, [2, 5]) for seed in four}).verdict == "undecided"
