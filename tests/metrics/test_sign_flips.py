"""The sign-flip test against SciPy's, closed forms and its level; Holm against statsmodels' rule; sizes of studies."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from unbraid.metrics.sign_flips import (
    DRAWS,
    MOST_EXACT,
    Combine,
    holm,
    least_replicates,
    replicates_for,
    sign_flip_p,
)


@pytest.mark.parametrize("n", range(2, 13))
def test_it_is_scipys_permutation_test_of_one_sample(n: int):
    values = np.random.default_rng(n).normal(0.4, 1, n)
    scipys = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p(values.tolist()) == pytest.approx(scipys.pvalue, rel=1e-12)


@pytest.mark.parametrize("n", [1, 3, 5, 8, 16])
def test_values_of_one_sign_have_the_smallest_p_there_is(n: int):
    values = np.random.default_rng(n).uniform(0.1, 1, n)
    assert sign_flip_p(values.tolist()) == sign_flip_p((-values).tolist()) == 2.0 ** (1 - n)


def test_equal_steps_have_the_p_of_the_binomial_sign_test():
    values = [1.0] * 7 + [-1.0]
    assert sign_flip_p(values) == pytest.approx(stats.binomtest(7, 8).pvalue)


def test_ties_and_zeros_count():
    assert sign_flip_p([0.1, 0.2, -0.3]) == 1.0  # .1 + .2 - .3 is not 0 in floating point, and is
    assert sign_flip_p([1.0, 0.0, 0.0]) == 1.0
    assert sign_flip_p([0.0] * 8) == sign_flip_p([]) == 1.0


def test_the_unit_does_not_matter():
    values = np.random.default_rng(0).normal(0.7, 1, 9)
    assert (
        sign_flip_p(values.tolist()) == sign_flip_p((1e-300 * values).tolist()) == sign_flip_p((1e9 * values).tolist())
    )


def test_what_is_not_finite_has_no_p():
    assert math.isnan(sign_flip_p([1.0, math.nan]))
    assert math.isnan(sign_flip_p([1.0, math.inf]))


def test_more_values_than_can_be_tried_are_sampled_near_the_exact_p_and_always_alike():
    n = MOST_EXACT + 2
    values = np.random.default_rng(1).normal(0.2, 1, n)
    signs = np.array(list(product([-1.0, 1.0], repeat=n - 1)))
    exact = (np.abs(signs @ values[:-1] + values[-1]) >= abs(values.sum()) - 1e-9).mean()
    sampled = sign_flip_p(values.tolist())
    assert 0.01 < exact < 0.2
    assert sampled == pytest.approx(exact, abs=5 * math.sqrt(exact / DRAWS))
    assert sampled == sign_flip_p(values.tolist())
    assert sign_flip_p([1.0] * 30) == 1 / (DRAWS + 1)


def test_under_the_null_no_level_is_reached_more_often_than_it_says():
    """Exactly: of the sign patterns of any eight sizes, at most a share t has a p of at most t."""
    sizes = np.random.default_rng(2).exponential(1, 8)
    p = np.array([sign_flip_p((sizes * signs).tolist()) for signs in product([-1.0, 1.0], repeat=8)])
    for level in np.unique(p):
        assert (p <= level).mean() <= level + 1e-12
    assert (p <= 0.05).mean() > 0.04


def test_holm_is_the_closed_test_of_bonferronis():
    """Adjusted p_i = max over all sets of tests with i of (size of the set · smallest p in it)."""
    rng = np.random.default_rng(3)
    for k in (1, 2, 3, 5):
        p = rng.uniform(0, 0.4, k)
        sets = [np.array(chosen, dtype=bool) for chosen in product([False, True], repeat=k) if any(chosen)]
        closed = [max(min(1.0, chosen.sum() * p[chosen].min()) for chosen in sets if chosen[i]) for i in range(k)]
        np.testing.assert_allclose(holm(p.tolist()), closed)


def test_so_many_replicates_that_the_smallest_p_is_below_the_level_of_a_part():
    for parts in range(1, 40):
        n = least_replicates(parts)
        assert n >= 8
        assert 2.0 ** (1 - n) <= 0.05 / parts
        assert n == 8 or 2.0 ** (2 - n) > 0.05 / parts


@pytest.mark.parametrize("combine", ["all", "any"])
def test_a_study_needs_more_replicates_for_less_and_for_more_parts(combine: Combine):
    assert replicates_for(10.0, 1.0, 1, combine) == 8
    assert replicates_for(10.0, 1.0, 20, combine) == least_replicates(20) == 10
    needed = [replicates_for(effect, 1.0, 2, combine) for effect in (2.0, 1.0, 0.5, 0.25)]
    assert needed == sorted(set(needed))
    assert [replicates_for(0.02, 0.02, parts, combine) for parts in (1, 2, 5)] == [11, 13, 16]


def test_of_one_part_the_number_is_that_of_the_textbook():
    """Two-sided t test, effect half a deviation, power .8: n = 34."""
    assert replicates_for(0.5, 1.0) == 34
