"""The published correlated firing: independent within a batch, modulated between batches, and the seed's figures."""

import numpy as np
import pytest
from scipy import stats

from unbraid.randomness import stream
from unbraid.worlds import Superposition
from unbraid.worlds.firing import Population
from unbraid.worlds.firing.batchwise import BatchwiseSampler
from unbraid.worlds.firing.covariance import covariance

PUBLISHED = {"kind": "correlated", "form": "published"}
SMALL = Superposition(dimensions=4, features=12, decay=0.9, active=1.2, firing=PUBLISHED, seed=2)


def draws(sampler, number):
    return np.array([sampler.batch_probabilities(stream(0, "test", i)) for i in range(number)])


def specification(world, number):
    """Rates of many batches from the seed's rule, written from its text with numpy's own sampler and scipy's Φ."""
    n, decay = world.features, world.decay ** np.arange(world.features)
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
    truth = Superposition(features=30, dimensions=4, active=0.5, firing=PUBLISHED, strength="product").batch(0, 20_000)
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
    "world", [SMALL, Superposition(features=8, decay=0.8, active=3.0, dimensions=4, firing=PUBLISHED)]
)
def test_probabilities_are_the_mean_over_batches_fill_and_ceiling_included(world):
    p = specification(world, 100_000)
    means = p + np.prod(1 - p, axis=1, keepdims=True) / world.features
    error = means.std(0) * (1 / np.sqrt(100_000) + 1 / np.sqrt(8192))
    assert (np.abs(world.probabilities.numpy() - means.mean(0)) < 4 * error).all()


def test_rates_belong_to_the_position_not_to_the_size():
    first, again = (SMALL.batch(3, size).truth for size in (30_000, 60_000))
    shares = [truth.counts()[0].numpy() / size for truth, size in ((first, 30_000), (again, 60_000))]
    assert np.abs(shares[0] - shares[1]).max() < 0.02
    other = SMALL.batch(4, 30_000).truth.counts()[0].numpy() / 30_000
    assert np.abs(shares[0] - other).max() > 0.1
