"""SAP by an implementation that tries every feature, and on codes whose gap has a closed form."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import balanced_accuracy_score
from sklearn.svm import LinearSVC

from unbraid.metrics.sap import sap


def sap_of_all(codes, factors, train):
    """As published, every feature alone, but on standardised columns and by balanced accuracy."""
    gaps = []
    for values in factors.values():
        fit, asked, scores = train & (values >= 0), ~train & (values >= 0), []
        for column in (codes / np.where(codes[train].std(0) > 0, codes[train].std(0), 1)).T[:, :, None]:
            said = LinearSVC(C=0.01, class_weight="balanced").fit(column[fit], values[fit]).predict(column[asked])
            scores.append(balanced_accuracy_score(values[asked], said))
        gaps.append(np.diff(np.sort(scores))[-1])
    return np.mean(gaps)


@pytest.fixture
def example(rng):
    """Twelve features: some tell a factor's value often, one tells two factors, one is dead, the others noise."""
    factors = {str(size): rng.integers(0, size, 600) for size in (2, 3, 5)}
    factors["5"][::4] = -1
    codes = rng.random((600, 12)) * (rng.random((600, 12)) < 0.15)
    codes[:, 0] += (factors["2"] == 1) * (rng.random(600) < 0.9)
    codes[:, 1] += (factors["2"] == 1) * (rng.random(600) < 0.6)
    codes[:, 2] += 2 * (factors["3"] == 2) + 1 * (factors["3"] == 1) * (rng.random(600) < 0.7)
    codes[:, 3] -= (factors["3"] == 0) * 1.0 + (factors["5"] == 4)
    codes[:, 4] = 0
    codes[:, 5] += (factors["5"] == 2) * (rng.random(600) < 0.8)
    return codes, factors, rng.random(600) < 0.5


def test_it_is_the_gap_that_all_features_give(example):
    codes, factors, train = example
    expected = sap_of_all(codes, factors, train)
    assert expected > 0.05
    assert sap(sparse.csr_array(codes), factors, train) == pytest.approx(expected)
    assert sap(sparse.csr_array(codes), factors, train, tried=12) == pytest.approx(expected)


def test_where_only_one_feature_tells_a_factor_fewer_tried_can_only_widen_the_gap(example):
    codes, factors, train = example
    codes = sparse.csr_array(codes[:, [0, *range(6, 12)]])
    gaps = [sap(codes, {"2": factors["2"]}, train, tried) for tried in range(2, 8)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] - gaps[-1] < 0.05


def test_units_do_not_matter(example):
    codes, factors, train = example
    small = sparse.csr_array(codes * 10.0 ** (np.arange(12) % 7 - 4))
    assert sap(small, factors, train) == pytest.approx(sap(sparse.csr_array(codes), factors, train))


@pytest.fixture
def perfect():
    """Three factors of two values in every combination, a feature each."""
    grid = np.stack(np.meshgrid(*[[0, 1]] * 3, indexing="ij"), -1).reshape(-1, 3)
    codes = np.tile(grid, (20, 1))
    return codes, {str(k): codes[:, k] for k in range(3)}, np.arange(160) < 80


def test_one_feature_a_factor_has_the_gap_to_chance_and_a_twin_closes_it(perfect):
    codes, factors, train = perfect
    assert sap(sparse.csr_array(codes), factors, train) == 0.5
    assert sap(sparse.csr_array(np.hstack([codes, codes])), factors, train) == 0


def test_a_feature_of_two_factors_has_half_of_the_gap_of_one(perfect):
    """From a + b each of a and b is told to 3/4: a gap of 1/4 for two factors of three."""
    codes, factors, train = perfect
    both = np.stack([codes[:, 0] + codes[:, 1], 0 * codes[:, 0]], 1)
    assert sap(sparse.csr_array(both), factors, train) == pytest.approx(2 / 3 / 4)


def test_noise_has_a_small_gap(rng):
    factors = {str(size): rng.integers(0, size, 4000) for size in (2, 4)}
    codes = sparse.random_array((4000, 30), density=0.1, rng=rng, format="csr")
    assert sap(codes, factors, rng.random(4000) < 0.5) < 0.03


def test_a_factor_that_cannot_be_asked_is_left_out(perfect):
    codes, factors, train = perfect
    only_fitted = np.where(train, factors["0"], -1)
    assert sap(sparse.csr_array(codes), {**factors, "c": 0 * only_fitted, "d": only_fitted}, train) == 0.5
    assert np.isnan(sap(sparse.csr_array(codes), {"d": only_fitted}, train))
    assert np.isnan(sap(sparse.csr_array(codes[:, :1]), factors, train))
