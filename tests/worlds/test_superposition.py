"""The default world against its theory: independent firing, the law of strengths, x as an explicit sum."""

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from unbraid.config import check
from unbraid.errors import UserError
from unbraid.worlds import Superposition

SMALL = Superposition(dimensions=4, n_features=6, decay=0.8, active=2.4)


def theory(features, decay, active):
    shares = [decay**i for i in range(features)]
    return np.array([active * share / sum(shares) for share in shares])


def fired(world, samples, position=0):
    return world.batch(position, samples).truth.to_dense()[0].numpy() != 0


def test_the_defaults_are_those_of_seed_002():
    world = Superposition()
    assert (world.dimensions, world.n_features, world.decay, world.active) == (256, 512, 0.99, 5.0)
    assert (world.strength, world.noise) == ("uniform", 0)


@pytest.mark.parametrize(("decay", "active"), [(0.99, 5.0), (1.0, 5.0), (0.9, 5.0), (0.5, 1.5)])
def test_probabilities_follow_the_formula_and_add_up_to_active(decay, active):
    probabilities = Superposition(decay=decay, active=active).probabilities.numpy()
    np.testing.assert_allclose(probabilities, theory(512, decay, active), rtol=1e-10)
    assert probabilities.sum() == pytest.approx(active)


def test_every_feature_of_the_default_world_fires_at_its_rate():
    samples = 40_000
    low, high = stats.binom.interval(1 - 1e-5, samples, theory(512, 0.99, 5.0))
    counts = fired(Superposition(), samples).sum(0)
    assert ((low <= counts) & (counts <= high)).all()


def test_the_mean_number_active_is_as_asked():
    probabilities, samples = theory(512, 0.99, 5.0), 40_000
    deviation = np.sqrt((probabilities * (1 - probabilities)).sum() / samples)
    mean = fired(Superposition(), samples).sum(1).mean()
    assert abs(mean - 5) < 4 * deviation


def test_pairs_fire_together_as_independent_features_do():
    samples, p = 60_000, theory(6, 0.8, 2.4)
    together = fired(SMALL, samples).astype(float)
    together = together.T @ together
    low, high = stats.binom.interval(1 - 1e-4, samples, np.outer(p, p))
    off_diagonal = ~np.eye(6, dtype=bool)
    assert ((low <= together) & (together <= high))[off_diagonal].all()


def test_a_feature_fires_independently_from_one_sample_to_the_next():
    once, samples, p = fired(SMALL, 60_000), 59_999, theory(6, 0.8, 2.4)
    low, high = stats.binom.interval(1 - 1e-4, samples, p**2)
    both = (once[1:] & once[:-1]).sum(0)
    assert ((low <= both) & (both <= high)).all()


def test_the_number_active_has_the_poisson_binomial_law():
    """Its exact law by convolution; its variance is the sum of p(1-p), less than a Poisson's."""
    p, samples = theory(6, 0.8, 2.4), 60_000
    law = np.ones(1)
    for chance in p:
        law = np.convolve(law, [1 - chance, chance])
    active = fired(SMALL, samples).sum(1)
    assert stats.chisquare(np.bincount(active, minlength=7), law * samples).pvalue > 0.001
    assert active.var() == pytest.approx((p * (1 - p)).sum(), rel=0.02)


@pytest.mark.parametrize(
    ("strength", "law"),
    [("uniform", lambda s: np.clip(s, 0, 1)), ("product", lambda s: np.where(s < 1, s * (1 - np.log(s)), 1))],
)
def test_strengths_have_their_law(strength, law):
    """P(U ≤ s) = s, and P(U·V ≤ s) = s (1 - log s)."""
    world = Superposition(strength=strength)
    values = world.batch(0, 8000).truth.values.numpy().ravel()
    values = values[values != 0].astype(float)
    assert len(values) > 30_000
    assert (values > 0).all()
    assert (values <= 1).all()
    assert stats.kstest(values, law).pvalue > 0.001


@pytest.mark.parametrize(("strength", "mean", "square"), [("uniform", 1 / 2, 1 / 3), ("product", 1 / 4, 1 / 9)])
def test_strengths_have_their_moments_and_are_independent_within_a_sample(strength, mean, square):
    world = Superposition(dimensions=4, n_features=2, decay=1.0, active=1.9, strength=strength)
    values = world.batch(0, 40_000).truth.to_dense()[0].double().numpy()
    both = values[(values != 0).all(1)]
    np.testing.assert_allclose(both.mean(0), mean, rtol=0.02)
    np.testing.assert_allclose((both**2).mean(0), square, rtol=0.03)
    assert abs(np.corrcoef(both, rowvar=False)[0, 1]) < 4 / np.sqrt(len(both))


def test_another_batch_has_other_strengths():
    strengths = [
        set(SMALL.batch(position, 20, split).truth.values.flatten().tolist()) - {0.0}
        for position, split in [(0, "train"), (1, "train"), (0, "evaluation")]
    ]
    assert len(set.union(*strengths)) == sum(map(len, strengths))


def test_x_is_the_sum_of_strengths_times_directions():
    batch, directions = SMALL.batch(0, 50), SMALL.directions.double().numpy()
    strengths = batch.truth.to_dense()[0].double().numpy()
    expected = np.zeros((50, 4))
    for sample, feature in np.ndindex(strengths.shape):
        expected[sample] += strengths[sample, feature] * directions[feature]
    np.testing.assert_allclose(batch.x.numpy(), expected, atol=1e-6)


def test_noise_is_gaussian_white_and_of_the_size_asked():
    world = Superposition(dimensions=8, n_features=12, active=2.0, noise=0.3)
    batch = world.batch(0, 5000)
    clean = batch.truth.to_dense()[0].double() @ world.directions.double()
    noise = (batch.x.double() - clean).numpy()
    assert stats.kstest(noise.ravel() / 0.3, "norm").pvalue > 0.001
    covariance = np.cov(noise, rowvar=False) / 0.3**2
    np.testing.assert_allclose(covariance, np.eye(8), atol=6 / np.sqrt(5000))


def test_directions_point_everywhere_alike():
    """Cosines of random directions in d dimensions have mean 0 and variance 1/d."""
    directions = Superposition().directions.double().numpy()
    cosines = (directions @ directions.T)[np.triu_indices(512, 1)]
    assert abs(cosines.mean()) < 1e-3
    assert cosines.var() == pytest.approx(1 / 256, rel=0.02)


def test_a_world_where_almost_nothing_fires_still_makes_batches():
    batch = Superposition(dimensions=3, n_features=5, active=1e-9).batch(0, 4)
    assert (batch.x == 0).all()
    assert (batch.truth.l0() == 0).all()


@pytest.mark.parametrize(("decay", "active"), [(0.9, 10.1), (0.5, 2.0), (1.0, 512.0), (0.99, 200.0)])
def test_more_active_than_the_decay_allows_is_refused_with_the_limit(decay, active):
    limit = sum(decay**i for i in range(512))
    with pytest.raises(UserError, match=f"accepted: active below {limit:.3g}"):
        check(Superposition, {"decay": decay, "active": active}, "here")


@pytest.mark.parametrize(("decay", "active"), [(0.9, 9.9), (0.5, 1.99), (1.0, 511.0)])
def test_just_below_the_limit_is_accepted(decay, active):
    assert Superposition(decay=decay, active=active).probabilities.max() < 1


@pytest.mark.parametrize(
    "settings",
    [
        {"dimensions": 0},
        {"n_features": -1},
        {"decay": 0.0},
        {"decay": 1.1},
        {"active": 0.0},
        {"noise": -0.1},
        {"seed": -1},
    ],
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ValidationError):
        Superposition(**settings)
