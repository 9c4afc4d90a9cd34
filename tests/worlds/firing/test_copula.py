"""The Gaussian copula against scipy's normal orthants, pair by pair, and against quadrature over its factor."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from unbraid.worlds import Superposition
from unbraid.worlds.firing import Population
from unbraid.worlds.firing.copula import CopulaSampler
from unbraid.worlds.firing.covariance import covariance

SAMPLES = 60_000
SHAPE = {"dimensions": 4, "features": 6, "decay": 0.8, "active": 1.8, "seed": 1}
FULL = Superposition(**SHAPE, firing={"kind": "correlated"})
ONE = Superposition(**SHAPE, firing={"kind": "correlated", "rank": 1, "correlation": 0.5})
TWO = Superposition(**SHAPE, firing={"kind": "correlated", "rank": 2, "correlation": 0.7})


def theory(features=6, decay=0.8, active=1.8):
    shares = [decay**i for i in range(features)]
    return np.array([active * share / sum(shares) for share in shares])


def correlation(world):
    """The full matrix, from C itself or from the loadings."""
    if not world.firing.rank:
        matrix = covariance(6, world.seed)
        return matrix / np.sqrt(np.outer(np.diag(matrix), np.diag(matrix)))
    loadings = CopulaSampler(Population(6, 0.8, 1.8, 1), world.firing.rank, world.firing.correlation).mixing
    matrix = loadings @ loadings.T
    np.fill_diagonal(matrix, 1)
    return matrix


def fired(world, samples=SAMPLES):
    return world.batch(0, samples).truth.to_dense()[0].numpy() != 0


@pytest.mark.parametrize("world", [FULL, ONE, TWO], ids=["full", "one", "two"])
def test_pairs_fire_together_as_the_bivariate_normal_says(world):
    """P(both) = P(z_i > t_i, z_j > t_j), and alone each as often as without correlation."""
    matrix, p = correlation(world), theory()
    expected = np.diag(p)
    for i, j in zip(*np.triu_indices(6, 1), strict=True):
        pair = stats.multivariate_normal(cov=[[1, matrix[i, j]], [matrix[i, j], 1]])
        expected[i, j] = expected[j, i] = pair.cdf(stats.norm.ppf(p[[i, j]]))
    both = fired(world).astype(float)
    low, high = stats.binom.interval(1 - 1e-4, SAMPLES, expected)
    together = both.T @ both
    assert ((low <= together) & (together <= high)).all()
    chance = np.outer(p, p)[np.triu_indices(6, 1)]
    assert (expected[np.triu_indices(6, 1)] > 1.05 * chance).all()  # so that independent firing would fail


@pytest.mark.parametrize("world", [FULL, ONE, TWO], ids=["full", "one", "two"])
def test_empty_samples_are_as_many_as_the_six_dimensional_orthant(world):
    thresholds = -stats.norm.ppf(theory())
    nothing = stats.multivariate_normal(cov=correlation(world)).cdf(thresholds)
    low, high = stats.binom.interval(1 - 1e-4, SAMPLES, nothing)
    assert low <= (~fired(world).any(1)).sum() <= high


def test_the_number_active_has_its_exact_law_under_one_factor():
    """Given the factor, features are independent: their Poisson binomial law, averaged by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    law = np.zeros(7)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        given = np.ones(1)
        for chance in ndtr((np.sqrt(0.5) * node + stats.norm.ppf(theory())) / np.sqrt(0.5)):
            given = np.convolve(given, [1 - chance, chance])
        law += weight * given
    active = np.bincount(fired(ONE).sum(1), minlength=7)
    assert stats.chisquare(active, law * SAMPLES).pvalue > 0.001


def test_one_sample_does_not_depend_on_the_one_before():
    for world in (FULL, TWO):
        once, p = fired(world), theory()
        low, high = stats.binom.interval(1 - 1e-4, SAMPLES - 1, p**2)
        both = (once[1:] & once[:-1]).sum(0)
        assert ((low <= both) & (both <= high)).all()


def test_loadings_have_the_length_asked_for_and_are_never_negative():
    loadings = CopulaSampler(Population(50, 0.9, 2.0, 0), 3, 0.4).mixing
    np.testing.assert_allclose((loadings**2).sum(1), 0.4)
    assert (loadings >= 0).all()
    np.testing.assert_allclose(CopulaSampler(Population(50, 0.9, 2.0, 0), 1, 0.4).mixing, np.sqrt(0.4))


def test_the_full_matrix_is_that_of_the_published_rule():
    mixing = CopulaSampler(Population(6, 0.8, 1.8, 1), 0, 0.0).mixing
    np.testing.assert_allclose(mixing @ mixing.T, correlation(FULL), atol=1e-12)


def test_without_correlation_features_are_independent():
    world, p = Superposition(**SHAPE, firing={"kind": "correlated", "rank": 2, "correlation": 0.0}), theory()
    both = fired(world).astype(float)
    low, high = stats.binom.interval(1 - 1e-4, SAMPLES, np.outer(p, p))
    off = ~np.eye(6, dtype=bool)
    assert ((low <= both.T @ both) & (both.T @ both <= high))[off].all()


def test_every_feature_of_the_default_size_fires_at_its_rate():
    samples, p = 8_000, theory(512, 0.99, 5.0)
    low, high = stats.binom.interval(1 - 1e-5, samples, p)
    for settings in ({}, {"rank": 8, "correlation": 0.3}):
        world = Superposition(dimensions=2, firing={"kind": "correlated", **settings})
        np.testing.assert_allclose(world.probabilities.numpy(), p)
        counts = world.batch(0, samples).truth.counts()[0].numpy()
        assert ((low <= counts) & (counts <= high)).all()


def test_low_rank_makes_no_square_matrix():
    """Thirty thousand features: n × n would be 7 GB."""
    sampler = CopulaSampler(Population(30_000, 1.0, 40.0, 0), 2, 0.2)
    cells = sampler.fire(np.random.default_rng(0), 20)
    assert sampler.mixing.shape == (30_000, 2)
    assert (np.diff(cells.samples) >= 0).all()
    assert cells.samples.max() == 19


def test_a_feature_that_all_but_never_fires_does_no_harm():
    batch = Superposition(dimensions=3, features=2000, decay=0.5, active=1.0, firing={"kind": "correlated", "rank": 1,
                          "correlation": 0.5}).batch(0, 50)  # fmt: skip
    assert batch.truth.counts()[0, 60:].sum() == 0
