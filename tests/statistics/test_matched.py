"""Settings at equal L0: straight lines over log L0, whose means and differences are known in closed form."""

import numpy as np
import pytest

from unbraid.errors import Refusal
from unbraid.statistics.matched import Path, compare

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
    with pytest.raises(Refusal, match="none of 2 points"):
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
