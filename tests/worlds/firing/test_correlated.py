"""Correlated firing: what is refused, its covariance matrix, and both forms against theory and the published figures.

Corrected: a Gaussian copula, against scipy's normal orthants, pair by pair, and quadrature over its factor. Published:
independent within a batch, modulated between batches.
"""

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from unbraid.config import check
from unbraid.errors import UserError
from unbraid.randomness import stream
from unbraid.worlds import Superposition
from unbraid.worlds.firing import Population
from unbraid.worlds.firing.correlated import BatchwiseSampler, CopulaSampler, covariance


@pytest.mark.parametrize(
    ("firing", "words"),
    [
        ({"rank": 2}, "rank 2 needs a correlation; accepted: at least 0 and below 1"),
        ({"correlation": 0.5}, "correlation is 0.5 and rank 0 does not read it; accepted: rank above 0"),
        ({"form": "published", "rank": 2, "correlation": 0.5}, "the published form has none; accepted: 0"),
        ({"rank": 2, "correlation": 1.0}, "it should be less than 1"),
        ({"rank": 2, "correlation": -0.1}, "it should be greater than or equal to 0"),
        ({"rank": -1}, "it should be greater than or equal to 0"),
        ({"rank": 13, "correlation": 0.5}, "accepted: at most the number of features, 12"),
        ({"form": "other"}, "it should be 'corrected' or 'published'"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(firing, words):
    settings = {"n_features": 12, "active": 1.0, "firing": {"kind": "correlated", **firing}}
    with pytest.raises(UserError, match=r"here: .*firing|here: rank is 13") as refused:
        check(Superposition, settings, "here")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("form", ["corrected", "published"])
def test_a_matrix_too_large_is_refused_before_it_is_made(form):
    settings = {"n_features": 5000, "firing": {"kind": "correlated", "form": form}}
    with pytest.raises(UserError, match="accepted: n_features up to 4096, or form 'corrected' with a rank above 0"):
        check(Superposition, settings, "here")
    assert Superposition(n_features=5000, firing={"kind": "correlated", "rank": 3, "correlation": 0.1})


@pytest.mark.parametrize("form", ["corrected", "published"])
def test_more_active_than_the_decay_allows_is_refused(form):
    settings = {"decay": 0.9, "active": 10.1, "firing": {"kind": "correlated", "form": form}}
    with pytest.raises(UserError, match="accepted: active below 10"):
        check(Superposition, settings, "here")


def test_an_unknown_rule_is_refused_with_those_there_are():
    with pytest.raises(UserError, match=r"did you mean 'hierarchy'.*independent, correlated, hierarchy"):
        check(Superposition, {"firing": {"kind": "hierarchies"}}, "here")


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


SAMPLES = 60_000
SHAPE = {"dimensions": 4, "n_features": 6, "decay": 0.8, "active": 1.8, "seed": 1}
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
    batch = Superposition(dimensions=3, n_features=2000, decay=0.5, active=1.0, firing={"kind": "correlated", "rank": 1,
                          "correlation": 0.5}).batch(0, 50)  # fmt: skip
    assert batch.truth.counts()[0, 60:].sum() == 0


PUBLISHED = {"kind": "correlated", "form": "published"}
SMALL = Superposition(dimensions=4, n_features=12, decay=0.9, active=1.2, firing=PUBLISHED, seed=2)


def draws(sampler, number):
    return np.array([sampler.batch_probabilities(stream(0, "test", i)) for i in range(number)])


def specification(world, number):
    """Rates of many batches from the seed's rule, written from its text with numpy's own sampler and scipy's Φ."""
    n, decay = world.n_features, world.decay ** np.arange(world.n_features)
    latent = np.random.default_rng(0).multivariate_normal(np.zeros(n), covariance(n, world.seed), number)
    p = stats.norm.cdf(latent) * decay
    return np.minimum(p * (world.active / n) / p.mean(1, keepdims=True), 1)


@pytest.fixture(scope="module")
def rates():
    """Rates of 200 batches of the seed's world."""
    return draws(BatchwiseSampler(Population(512, 0.99, 5.0, 0)), 200)


def test_every_batch_has_exactly_the_active_asked_for(rates):
    np.testing.assert_allclose(rates.sum(1), 5, rtol=1e-12)


def test_the_seeds_figures(rates):
    """P(nothing fires) ≈ .006 before the fill; the largest rate of a batch about .10, up to .18 or a little more."""
    assert np.prod(1 - rates, axis=1).mean() == pytest.approx(0.006, abs=2e-4)
    assert np.median(rates.max(1)) == pytest.approx(0.10, abs=0.01)
    assert 0.14 < rates.max() < 0.25


def test_rates_are_nearly_on_or_off_between_batches(rates):
    """Φ(3.1 z) is within .05 of 0 or 1 in about 60 % of draws: 2 (1 - Φ(1.64 / 3.1))."""
    on = rates[:, :50] / (0.99 ** np.arange(50))
    on = on / np.quantile(on, 0.99, axis=1, keepdims=True)
    extreme = ((on < 0.05) | (on > 0.95)).mean()
    assert extreme == pytest.approx(2 * stats.norm.sf(1.645 / np.sqrt(9.7)), abs=0.04)


@pytest.mark.parametrize(("strength", "figure", "square"), [("uniform", 0.00651, 1 / 3), ("product", 0.00217, 1 / 9)])
def test_the_published_error_of_answering_zero(strength, figure, square):
    """Seed 002's figure, which is 5 · E[strength²] / 256; the fill adds .006 features of strength 1."""
    assert 5 * square / 256 == pytest.approx(figure, rel=2e-3)
    world = Superposition(firing=PUBLISHED, strength=strength)
    squares = [world.batch(position, 250).x.square().mean().item() for position in range(120)]
    assert np.mean(squares) == pytest.approx(figure + 0.006 / 256, abs=4 * np.std(squares) / np.sqrt(120))
    assert np.std(squares) / np.sqrt(120) < 0.02 * figure


def test_no_sample_is_empty_and_a_filled_one_has_strength_one():
    truth = Superposition(n_features=30, dimensions=4, active=0.5, firing=PUBLISHED, strength="product").batch(
        0, 20_000
    )
    values = truth.truth.to_dense()[0].numpy()
    fired = values != 0
    assert fired.any(1).all()
    filled = fired & (values == 1)
    assert (fired[filled.any(1)].sum(1) == 1).all()
    assert stats.chisquare(filled.sum(0)).pvalue > 0.001  # any feature alike
    sampler = BatchwiseSampler(Population(30, 0.99, 0.5, 0))
    nothing = np.prod(1 - sampler.batch_probabilities(stream(0, "train", 0)))
    low, high = stats.binom.interval(1 - 1e-5, 20_000, nothing)
    assert low <= filled.sum() <= high


def test_within_a_batch_features_fire_at_its_rates_and_independently():
    samples = 60_000
    p = BatchwiseSampler(Population(12, 0.9, 1.2, 2)).batch_probabilities(stream(2, "train", 0))
    values = SMALL.batch(0, samples).truth.to_dense()[0].numpy()
    fired = ((values != 0) & ~((values == 1).any(1, keepdims=True))).astype(float)  # without the fill
    together = fired.T @ fired
    expected = np.outer(p, p)
    np.fill_diagonal(expected, p)
    low, high = stats.binom.interval(1 - 1e-5, samples, expected)
    assert ((low <= together) & (together <= high)).all()


def test_between_batches_counts_vary_as_the_rates_do():
    """Var(count) = size · E[p(1-p)] + size² · Var(p), where independent firing has the first term alone."""
    size, batches = 100, 1500
    counts = np.array([SMALL.batch(position, size).truth.counts()[0].numpy() for position in range(batches)])
    p = specification(SMALL, 40_000)
    p = p + np.prod(1 - p, axis=1, keepdims=True) / 12  # the fill
    expected = size * (p * (1 - p)).mean(0) + size**2 * p.var(0)
    np.testing.assert_allclose(counts.var(0) / expected, 1, atol=0.25)
    assert (counts.var(0) > 2 * counts.mean(0)).all()


def test_rates_of_two_features_rise_together_as_the_covariance_says():
    rates = draws(BatchwiseSampler(Population(12, 0.9, 1.2, 2)), 4000)
    expected = np.corrcoef(specification(SMALL, 40_000), rowvar=False)
    np.testing.assert_allclose(np.corrcoef(rates, rowvar=False), expected, atol=0.09)


@pytest.mark.parametrize(
    "world", [SMALL, Superposition(n_features=8, decay=0.8, active=3.0, dimensions=4, firing=PUBLISHED)]
)
def test_probabilities_are_the_mean_over_batches_fill_and_ceiling_included(world):
    p = specification(world, 100_000)
    means = p + np.prod(1 - p, axis=1, keepdims=True) / world.n_features
    error = means.std(0) * (1 / np.sqrt(100_000) + 1 / np.sqrt(8192))
    assert (np.abs(world.probabilities.numpy() - means.mean(0)) < 4 * error).all()


def test_rates_belong_to_the_position_not_to_the_size():
    first, again = (SMALL.batch(3, size).truth for size in (30_000, 60_000))
    shares = [truth.counts()[0].numpy() / size for truth, size in ((first, 30_000), (again, 60_000))]
    assert np.abs(shares[0] - shares[1]).max() < 0.02
    other = SMALL.batch(4, 30_000).truth.counts()[0].numpy() / 30_000
    assert np.abs(shares[0] - other).max() > 0.1
