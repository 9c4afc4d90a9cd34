"""The seed's random covariance matrix against the facts and the semicircle law."""

import numpy as np

from unbraid.worlds.firing.covariance import covariance


def test_it_is_symmetric_and_only_just_positive_definite():
    """Taking away 1001 times the least eigenvalue gives back (U + Uᵀ)/2, every entry in (0, 1), the diagonal too."""
    matrix = covariance(40, 0)
    np.testing.assert_array_equal(matrix, matrix.T)
    least = np.linalg.eigvalsh(matrix)[0]
    original = matrix - 1001 * least * np.eye(40)
    assert least > 0
    assert (original > 0).all()
    assert (original < 1).all()


def test_off_the_diagonal_it_has_the_mean_of_two_uniforms():
    off = covariance(512, 1)[np.triu_indices(512, 1)]
    assert abs(off.mean() - 1 / 2) < 4 / np.sqrt(24 * off.size)
    assert abs(off.var() - 1 / 24) < 0.001


def test_the_correlation_of_a_pair_is_that_of_the_semicircle_law():
    """λ_min ≈ -2√(n/24) = -9.24, a little less at finite n: a diagonal near 9.7, and .5 / 9.7 ≈ .052 for a pair."""
    for seed in range(3):
        matrix = covariance(512, seed)
        scale = np.sqrt(np.diag(matrix))
        correlation = (matrix / np.outer(scale, scale))[np.triu_indices(512, 1)]
        assert 9.3 < np.diag(matrix).mean() < 9.9
        assert 0.050 < correlation.mean() < 0.054


def test_it_is_the_same_for_a_seed_and_another_for_another():
    np.testing.assert_array_equal(covariance(6, 4), covariance(6, 4))
    assert not np.array_equal(covariance(6, 4), covariance(6, 5))


def test_a_matrix_that_is_positive_already_is_left_alone():
    for seed in range(30):
        assert np.linalg.eigvalsh(covariance(2, seed))[0] > 0
        assert 0 < covariance(1, seed)[0, 0] < 1
