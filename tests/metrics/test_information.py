"""Mutual information by scikit-learn's on dense bins, MIG and modularity by their published sums and closed forms."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import gammaincc
from sklearn.metrics import mutual_info_score

from unbraid.metrics.information import accident, entropies, mig, modularity, mutual_information


def dense_information(codes, factors, discretise):
    """As disentanglement_lib goes about it, one column and one factor at a time."""
    table = np.zeros((codes.shape[1], len(factors)))
    for f in range(codes.shape[1]):
        bins = discretise(codes[:, f])
        for k, values in enumerate(factors.values()):
            table[f, k] = mutual_info_score(values[values >= 0], bins[values >= 0])
    return table


def zero_apart(column, bins=20):
    """0 is bin 0, the others by numpy's histogram of them."""
    out, fired = np.zeros(len(column), int), column != 0
    if fired.any():
        out[fired] = np.digitize(column[fired], np.histogram(column[fired], bins)[1][:-1])
    return out


def whole_range(column, bins=20):
    return np.digitize(column, np.histogram(column, bins)[1][:-1])


@pytest.fixture
def example(rng):
    """Signed sparse codes with a dead, a constant and a two-valued feature; factors with rows that have no value."""
    factors = {str(size): rng.integers(-1, size, 500) for size in (2, 3, 6)}
    codes = rng.standard_normal((500, 8)) * (rng.random((500, 8)) < 0.2) + 0.5 * (factors["3"] == 1)[:, None]
    codes *= rng.random((500, 8)) < 0.5
    codes[:, 0], codes[:, 1], codes[:, 2] = 0, 3.0, factors["2"] == 1
    codes[:, 3] += 9 * (codes[:, 3] != 0)  # where it fires, far from 0: the bins begin there
    return codes, factors


def test_information_is_that_of_the_dense_bins(example):
    codes, factors = example
    stored = sparse.csr_array(codes)
    stored.data[np.flatnonzero(stored.indices > 3)[5]] = 0  # stored, and yet it did not fire
    found = mutual_information(stored, factors)
    np.testing.assert_allclose(found, dense_information(stored.toarray(), factors, zero_apart), atol=1e-12)
    assert (found[:2] == 0).all()


def test_without_zeros_it_is_disentanglement_lib_s_histogram(rng):
    codes, factors = rng.standard_normal((400, 4)), {"a": rng.integers(0, 3, 400), "b": rng.integers(0, 2, 400)}
    codes[:, 1] += factors["a"]
    expected = dense_information(codes, factors, whole_range)
    np.testing.assert_allclose(mutual_information(sparse.csr_array(codes), factors), expected, atol=1e-12)


def test_with_zeros_faint_firing_is_not_silence():
    """A value fires at .01 where another feature value is 1: the histogram of the whole range does not see it."""
    values = np.arange(300) % 3
    codes = np.array([0, 0.01, 1])[values][:, None]
    assert mutual_information(sparse.csr_array(codes), {"a": values}).item() == pytest.approx(np.log(3))
    assert dense_information(codes, {"a": values}, whole_range).item() < 0.64


def test_mig_and_modularity_are_the_published_sums(example):
    codes, factors = example
    table = mutual_information(sparse.csr_array(codes), factors)[2:]
    entropy = [mutual_info_score(v[v >= 0], v[v >= 0]) for v in factors.values()]
    ranked = np.sort(table, axis=0)[::-1]
    square = table**2
    apart = (square.sum(1) - square.max(1)) / (square.max(1) * 2)
    np.testing.assert_allclose(entropies(factors), entropy)
    assert mig(table, entropies(factors)) == pytest.approx(np.mean((ranked[0] - ranked[1]) / entropy))
    assert modularity(table, np.zeros(3)) == pytest.approx(np.mean(1 - apart))


def independent(*sizes, times=10):
    grid = np.stack(np.meshgrid(*[np.arange(size) for size in sizes], indexing="ij"), -1).reshape(-1, len(sizes))
    return {str(k): np.tile(grid[:, k], times) for k in range(len(sizes))}


def test_one_feature_a_factor_is_one_in_both():
    factors = independent(2, 3, 4)
    table = mutual_information(sparse.csr_array(np.stack(list(factors.values()), 1)), factors)
    np.testing.assert_allclose(table, np.diag(np.log([2, 3, 4])), atol=1e-12)
    assert mig(table, entropies(factors)) == pytest.approx(1)
    assert modularity(table, np.zeros(3)) == pytest.approx(1)


def test_a_twin_takes_all_of_mig_and_nothing_of_modularity():
    factors = independent(2, 3, 4)
    codes = np.stack(list(factors.values()), 1)
    table = mutual_information(sparse.csr_array(np.hstack([codes, codes])), factors)
    assert mig(table, entropies(factors)) == 0
    assert modularity(table, np.zeros(3)) == pytest.approx(1)


def test_one_feature_a_value_has_no_gap_either():
    factors = independent(3, 3)
    codes = np.hstack([np.eye(3)[values] for values in factors.values()])
    table = mutual_information(sparse.csr_array(codes), factors)
    assert mig(table, entropies(factors)) == pytest.approx(0, abs=1e-12)
    assert modularity(table, np.zeros(2)) == pytest.approx(1)


def test_a_feature_of_two_factors_alike_loses_its_share():
    """Of K factors one other is as well said: 1 - 1 / (K - 1); the gap of the two it says is theirs in full."""
    factors = independent(2, 2, 2, 2)
    codes = 1 + factors["0"] + 2 * factors["1"]
    table = mutual_information(sparse.csr_array(np.stack([codes, 0 * codes], 1)), factors)
    assert modularity(table, np.zeros(4)) == pytest.approx(1 - 1 / 3)
    assert mig(table, entropies(factors)) == pytest.approx(1 / 2)


def test_modularity_is_over_the_features_that_say_enough():
    table = np.array([[0.5, 0.0], [0.0, 0.0], [0.01, 0.01]])
    assert modularity(table, np.array([0.02, 0.02])) == 1
    assert modularity(table, np.array([0.02, 0.005])) == 0.5
    assert np.isnan(modularity(table, np.array([0.5, 0.5])))


def test_an_accident_is_a_rare_one_and_does_not_hide_what_is_said(rng):
    """Noise passes less than once in ten thousand, though χ² only approximates it; a feature that knows passes."""
    factors = {"a": rng.integers(0, 4, 4000), "b": np.where(rng.random(4000) < 0.5, rng.integers(0, 2, 4000), -1)}
    noise = (0.05 + rng.random((4000, 1000))) * (rng.random((4000, 1000)) < 0.2)
    knows = (factors["a"] == 1) * (factors["b"] == 1) * rng.random(4000)
    found = mutual_information(sparse.csr_array(np.column_stack([noise, knows])), factors) > accident(factors)
    assert found[:-1].sum() == 0
    assert found[-1].all()
    np.testing.assert_allclose(accident(factors), chi2_of([60, 20]) / 2 / np.array([4000, (factors["b"] >= 0).sum()]))


def chi2_of(freedom):
    """Where the upper tail of χ² is one in a million, by bisection on the regularised gamma function."""
    return 2 * np.array([brentq(lambda x, a=a: gammaincc(a / 2, x) - 1e-6, 0, 500) for a in freedom])


def test_a_factor_with_one_value_or_none_is_left_out(example):
    codes, factors = sparse.csr_array(example[0]), example[1]
    more = {**factors, "one": np.zeros(500, int), "none": np.full(500, -1)}
    table, fewer = mutual_information(codes, more), mutual_information(codes, factors)
    assert np.isnan(table).all(0).tolist() == [False, False, False, True, True]
    assert mig(table, entropies(more)) == mig(fewer, entropies(factors))
    assert modularity(table, accident(more)) == modularity(fewer, accident(factors))
    assert np.isnan(mig(table[:1], entropies(more)))
    assert np.isnan(mig(table[:, 3:], np.zeros(2)))
    assert np.isnan(modularity(fewer[:, :1], np.zeros(1)))
