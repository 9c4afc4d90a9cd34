import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from unbraid.models.constraints import Independence
from unbraid.models.constraints.independence import RIDGE, Conditional, club, info_nce

STORIES, HEADS = 5, 3


@pytest.fixture
def read(rng):
    return rng.standard_normal((2, STORIES, HEADS, 3, 4))


def pooled(values, mask):
    z = np.zeros((2, STORIES, HEADS, 4))
    for m, b, h in np.ndindex(2, STORIES, HEADS):
        mean = sum(values[m, b, h, t] for t in range(3) if mask[b, t]) / mask[b].sum()
        z[m, b, h] = mean / np.sqrt((mean**2).sum())
    return z


def mask():
    return np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 0]], bool)


def contrast(z):
    """By hand: the published cross-entropy, pair by pair."""
    expected = np.zeros(2)
    for m in range(2):
        for i, j in ((0, 1), (0, 2), (1, 2)):
            for b in range(STORIES):
                scores = [z[m, b, i] @ z[m, c, j] / 0.2 for c in range(STORIES)]
                expected[m] += (np.log(np.exp(scores).sum()) - scores[b]) / (3 * STORIES)
    return expected


def test_published_is_info_nce_and_corrected_the_bound_that_it_gives(read):
    expected = contrast(pooled(read, mask()))
    given = {"output": torch.from_numpy(read), "mask": torch.from_numpy(mask())}
    np.testing.assert_allclose(Independence(form="published").cost(**given), expected, atol=1e-12)
    np.testing.assert_allclose(Independence().cost(**given), np.log(STORIES) - expected, atol=1e-12)


def test_the_published_sign_draws_heads_together_and_the_corrected_one_apart():
    """Two heads that read the same have the lowest published cost and the highest corrected one."""
    apart = np.eye(8)[:, None, None, :]
    same = torch.from_numpy(np.concatenate([apart, apart], 1)[None])
    mixed = torch.from_numpy(np.concatenate([apart, np.roll(apart, 1, 0)], 1)[None])
    every = torch.ones(8, 1, dtype=torch.bool)
    assert Independence(form="published").cost(same, every) < Independence(form="published").cost(mixed, every)
    assert Independence().cost(same, every) > Independence().cost(mixed, every)


def test_info_nce_stays_below_the_information_there_is(rng):
    """A fair sign shared by both heads is log 2 nats; the bound must not pass it, and finds most of it."""
    sign = rng.choice([-1.0, 1.0], 4000)
    z = torch.from_numpy(np.stack([np.stack([sign, 0 * sign], -1)] * 2, 1)[None])
    bound = np.log(4000) - float(info_nce(z, 0.2))
    assert 0.6 < bound < np.log(2) + 0.01


def test_the_conditional_is_a_ridge_regression(rng):
    z = rng.standard_normal((1, 40, 2, 3)) @ rng.standard_normal((3, 3))
    q = Conditional.of(torch.from_numpy(z))
    for i, j in np.ndindex(2, 2):
        x, y = z[0, :, i], z[0, :, j]
        peer = Ridge(alpha=40 * RIDGE * x.var(0).mean()).fit(x, y)
        columns = slice(3 * j, 3 * j + 3)
        np.testing.assert_allclose(q.slope[0, i, :, columns], peer.coef_.T, atol=1e-6)
        np.testing.assert_allclose(q.shift[0, i, 0, columns], peer.intercept_, atol=1e-6)
        left = ((y - peer.predict(x)) ** 2).mean(0) + RIDGE * y.var(0)
        np.testing.assert_allclose(q.variance[0, i, 0, columns], left, atol=1e-6)


def test_club_is_the_gain_of_ones_own_story_over_all(rng):
    z = rng.standard_normal((2, STORIES, HEADS, 4))
    q = Conditional.of(torch.from_numpy(z))
    slope, shift, variance = (part.numpy() for part in (q.slope, q.shift, q.variance))
    expected = np.zeros(2)
    for m, i, j in np.ndindex(2, HEADS, HEADS):
        if i == j:
            continue
        own = slice(4 * j, 4 * j + 4)
        for b, c in np.ndindex(STORIES, STORIES):
            centre = z[m, b, i] @ slope[m, i, :, own] + shift[m, i, 0, own]
            of = [-((z[m, s, j] - centre) ** 2 / (2 * variance[m, i, 0, own])).sum() for s in (b, c)]
            expected[m] += (of[0] - of[1]) / (STORIES**2 * HEADS * (HEADS - 1))
    np.testing.assert_allclose(club(torch.from_numpy(z), q), expected, atol=1e-12)


def test_club_lies_above_the_information_of_gaussian_heads_and_near_nothing_without_any(rng):
    """One dimension each, correlation ρ: the information is -½ log(1-ρ²)."""
    x, noise = rng.standard_normal((2, 20_000))
    for correlation in (0.0, 0.5, 0.8):
        y = correlation * x + np.sqrt(1 - correlation**2) * noise
        z = torch.from_numpy(np.stack([x, y], 1)[None, :, :, None])
        bound, known = float(club(z, Conditional.of(z))), -0.5 * np.log(1 - correlation**2)
        assert bound < 0.01 if correlation == 0 else bound > known
