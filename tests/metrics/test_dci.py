"""DCI on codes whose answer has a closed form, its sums by the published formula, its predictor by another solver."""

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import entropy

from unbraid.metrics.dci import completeness, dci, disentanglement, fit_l1
from unbraid.metrics.splitting import l1_probe


def every_combination(*sizes, times=20):
    """Factors that know nothing of each other, exactly: each combination equally often, also among the train rows."""
    grid = np.stack(np.meshgrid(*[np.arange(size) for size in sizes], indexing="ij"), -1).reshape(-1, len(sizes))
    rows = np.tile(grid, (times, 1))
    train = np.arange(len(rows)) < len(rows) // 2
    return {f"factor {k}": rows[:, k] for k in range(len(sizes))}, train


def a_feature_per_value(factors):
    return np.concatenate([np.eye(values.max() + 1)[values] for values in factors.values()], 1)


def test_one_feature_a_factor_is_one_in_all_three():
    factors, train = every_combination(2, 2, 2)
    found = dci(sparse.csr_array(np.stack(list(factors.values()), 1)), factors, train)
    assert (found.disentanglement, found.completeness, found.informativeness) == pytest.approx((1, 1, 1))
    np.testing.assert_array_equal(found.importance > 0, np.eye(3, dtype=bool))


def test_one_feature_a_value_is_pure_but_complete_only_up_to_the_number_of_values():
    factors, train = every_combination(3, 4)
    found = dci(sparse.csr_array(a_feature_per_value(factors)), factors, train)
    assert (found.disentanglement, found.informativeness) == pytest.approx((1, 1))
    assert found.completeness == pytest.approx(1 - (np.log(3) + np.log(4)) / 2 / np.log(7), abs=1e-4)


def test_a_feature_that_tells_two_factors_alike_has_no_disentanglement():
    """From a + b each is told right at 0 and 2, and at 1 for one of its values."""
    factors, train = every_combination(2, 2)
    both = sum(factors.values())
    found = dci(sparse.csr_array(np.stack([both, 0 * both], 1)), factors, train)
    assert found.disentanglement == pytest.approx(0, abs=1e-6)
    assert found.informativeness == 0.75
    assert np.isnan(found.completeness)  # of the two features one is dead


def test_d_and_c_are_those_of_the_published_code(rng):
    """disentanglement_lib's entropies for D; for C their mean over factors, as Eastwood and Williams take it."""
    table = rng.exponential(size=(12, 5)) * (rng.random((12, 5)) < 0.6)
    by_feature, by_factor = 1 - entropy(table.T + 1e-11, base=5), 1 - entropy(table + 1e-11, base=12)
    assert disentanglement(table) == pytest.approx((by_feature * table.sum(1) / table.sum()).sum())
    assert completeness(table, 12) == pytest.approx(by_factor.mean())
    assert completeness(np.vstack([table, np.zeros((30, 5))]), 12) == pytest.approx(by_factor.mean())


def test_the_predictor_is_the_l1_probe(rng):
    """Another solver, run for long, ends at the same weights."""
    rows = sparse.csr_array(rng.random((400, 30)) * (rng.random((400, 30)) < 0.3))
    dense = rows.toarray()
    known = np.stack([dense[:, 0] + 0.3 * rng.random(400) > 0.4, dense[:, 3] - dense[:, 4] > 0.1], 1)
    expected = l1_probe(rows, known, 8000)
    assert 0 < (expected != 0).sum() < expected.size
    np.testing.assert_allclose(fit_l1(rows, known)[0], expected, atol=0.01)


def test_importance_adds_up_over_values_and_two_values_are_one_question_counted_twice(rng):
    factors, train = every_combination(2, 3)
    codes = a_feature_per_value(factors)[:, 1:] + 0.1 * rng.random((120, 4))
    found = dci(sparse.csr_array(codes), factors, train).importance
    rows = sparse.csr_array(codes[train] / codes[train].std(0))
    for k, values in enumerate(factors.values()):
        expected = np.abs(l1_probe(rows, values[train][:, None] == np.unique(values), 5000)).sum(1)
        np.testing.assert_allclose(found[:, k], expected, atol=0.02 * expected.max())


def test_it_is_asked_on_the_rows_it_was_not_fitted_on():
    factors, train = every_combination(2, 2)
    codes = sparse.csr_array(np.stack([np.where(train, v, 1 - v) for v in factors.values()], 1))
    assert dci(codes, factors, train).informativeness == 0


def test_informativeness_weighs_a_rare_value_like_a_common_one():
    """One feature misses half of the rare value: balanced that is 3/4, plainly it would be 19/20."""
    values = np.arange(200) % 10 // 9
    codes = np.stack([values * (np.arange(200) % 20 == 9), 1 - (np.arange(200) % 2)], 1)
    found = dci(sparse.csr_array(codes.astype(float)), {"rare": values}, np.arange(200) < 100, 0.2)
    assert found.informativeness == pytest.approx(0.75)


def test_rows_without_a_value_are_left_out():
    """Where a factor has no value its feature says the contrary."""
    factors, train = every_combination(2, 2, 2, times=24)
    unknown = np.arange(len(train)) % 24 < 8
    codes = np.stack([np.where(unknown, 1 - v, v) for v in factors.values()], 1)
    found = dci(sparse.csr_array(codes), {name: np.where(unknown, -1, v) for name, v in factors.items()}, train)
    assert (found.disentanglement, found.completeness, found.informativeness) == pytest.approx((1, 1, 1))


def test_units_dead_features_and_constant_ones_change_nothing(rng):
    factors, train = every_combination(3, 2, 2)
    codes = a_feature_per_value(factors) * rng.random((240, 7))
    more = np.concatenate([codes * 10.0 ** rng.integers(-3, 4, 7), np.zeros((240, 4)), np.full((240, 1), 0.1)], 1)
    late = np.where(train, 0, rng.random(240))[:, None]  # fires on the rows asked, and only there
    one, other = (dci(sparse.csr_array(each), factors, train) for each in (codes, np.hstack([more, late])))
    assert other.disentanglement == pytest.approx(one.disentanglement, abs=1e-3)
    assert other.completeness == pytest.approx(one.completeness, abs=1e-3)
    assert other.informativeness == one.informativeness
    assert (other.importance[7:] == 0).all()


def test_noise_tells_as_much_as_chance(rng):
    factors = {str(size): rng.integers(0, size, 2000) for size in (2, 3, 5)}
    codes = sparse.random_array((2000, 60), density=0.05, rng=rng, format="csr")
    found = dci(codes, factors, rng.random(2000) < 0.5)
    assert found.informativeness == pytest.approx((1 / 2 + 1 / 3 + 1 / 5) / 3, abs=0.03)
    assert found.completeness < 0.3


def test_what_cannot_be_asked_is_left_out_and_what_is_not_told_is_nothing():
    factors, train = every_combination(2, 2)
    codes = sparse.csr_array(np.stack(list(factors.values()), 1))
    constant, only_fitted = np.zeros(80, int), np.where(train, factors["factor 0"], -1)
    found = dci(codes, {**factors, "constant": constant, "only fitted": only_fitted}, train)
    assert (found.disentanglement, found.completeness, found.informativeness) == pytest.approx((1, 1, 1))
    assert np.isnan(found.importance).all(0).tolist() == [False, False, True, True]
    alone = dci(codes, {"a": factors["factor 0"]}, train)
    assert np.isnan(alone.disentanglement)
    assert alone.completeness == 1
    nothing = dci(codes, {"constant": constant}, train)
    assert np.isnan([nothing.disentanglement, nothing.completeness, nothing.informativeness]).all()
    silent = dci(codes, factors, train, penalty=1.0)
    assert (silent.disentanglement, silent.completeness, silent.informativeness) == (0, 0, 0.5)
