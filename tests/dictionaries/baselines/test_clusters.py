"""k-means and k-medoids against scikit-learn, brute force and planted clusters."""

from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn import cluster

from unbraid.dictionaries.baselines import KMeans, KMedoids
from unbraid.dictionaries.baselines.clusters import distinct
from unbraid.errors import UserError
from unbraid.worlds import Superposition

ALL = [KMeans(n_components=6), KMeans(n_components=6, minibatch_above=0), KMedoids(n_components=6)]


@pytest.mark.parametrize("baseline", ALL, ids=["kmeans", "mini-batches", "kmedoids"])
def test_planted_orthogonal_clusters_are_found_and_rebuilt(baseline, rng):
    """One direction a sample, with strengths that are far from making clusters of their own."""
    truth = np.linalg.qr(rng.standard_normal((9, 9)))[0][:6]
    strengths, which = rng.uniform(0.9, 1.1, 400), rng.integers(0, 6, 400)
    x = torch.from_numpy((strengths[:, None] * truth[which]).astype(np.float32))
    fitted = baseline.fit(torch.cat([x, torch.zeros(300, 9)]))
    cosine = truth @ fitted.components_.T
    np.testing.assert_allclose(cosine.max(1), 1, atol=1e-5)
    codes = fitted.encode(x)
    assert (codes.l0() == 1).all()
    assert np.array_equal(codes.features[0, :, 0].numpy(), cosine.argmax(1)[which])
    np.testing.assert_allclose(codes.values[0, :, 0].numpy(), strengths, rtol=1e-4)
    np.testing.assert_allclose(fitted.decode(codes)[0].numpy(), x.numpy(), atol=1e-4)


def test_k_means_is_scikit_learns_on_the_rows_that_are_not_zero(rng):
    rows = rng.standard_normal((200, 5)).astype(np.float32)
    baseline = KMeans(n_components=7, seed=11)
    fitted = baseline.fit(torch.from_numpy(np.concatenate([rows, np.zeros((40, 5), np.float32)])))
    expected = cluster.KMeans(7, n_init=1, random_state=baseline.random_state).fit(rows)
    centres = fitted.components_ * fitted.rule.lengths[0].numpy()[:, None]
    np.testing.assert_allclose(centres, expected.cluster_centers_, atol=1e-5)
    fresh = rng.standard_normal((50, 5)).astype(np.float32)
    assert np.array_equal(fitted.encode(torch.from_numpy(fresh)).features[0, :, 0].numpy(), expected.predict(fresh))


def test_the_published_form_of_k_means_is_scikit_learns_mini_batches_on_all_rows(rng):
    rows = np.concatenate([rng.standard_normal((200, 5)), np.zeros((40, 5))]).astype(np.float32)
    baseline = KMeans(n_components=7, seed=11, form="published")
    expected = cluster.MiniBatchKMeans(7, n_init=3, random_state=baseline.random_state).fit(rows).cluster_centers_
    fitted = baseline.fit(torch.from_numpy(rows))
    assert fitted.points == 240
    np.testing.assert_allclose(
        fitted.components_ * fitted.rule.lengths[0].numpy()[:, None],
        expected[np.linalg.norm(expected, axis=1) > 1e-5],
        atol=1e-5,
    )


def test_k_medoids_are_the_rows_with_the_least_sum_of_distances(rng):
    """Against every choice of two of twelve rows."""
    rows = np.concatenate([rng.normal(3, 0.5, (6, 2)), rng.normal((-3, 3), 0.5, (6, 2))]).astype(np.float32)
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=-1)
    best = min(combinations(range(12), 2), key=lambda pair: distances[:, pair].min(1).sum())
    found = KMedoids(n_components=2).fit(torch.from_numpy(rows))
    expected = rows[list(best)] / np.linalg.norm(rows[list(best)], axis=1, keepdims=True)
    np.testing.assert_allclose(sorted(found.components_.tolist()), sorted(expected.tolist()), rtol=1e-5)


@pytest.mark.parametrize("baseline", ALL, ids=["kmeans", "mini-batches", "kmedoids"])
def test_with_a_cluster_for_every_row_the_rows_themselves_come_back(baseline, rng):
    rows = rng.standard_normal((6, 4)).astype(np.float32)
    fitted = baseline.fit(torch.from_numpy(np.concatenate([rows, rows[:3], rows[:2]])))
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(sorted(fitted.components_.tolist()), sorted(expected.tolist()), atol=1e-5)


@pytest.mark.parametrize("kind", [KMeans, KMedoids])
def test_zero_rows_have_no_say(kind):
    x = Superposition(dimensions=12, n_features=20, active=1.0).batch(0, 200).x
    some = x[x.any(1)]
    with_zeros, without = (
        kind(n_components=10).fit(torch.cat([some, torch.zeros(99, 12)])),
        kind(n_components=10).fit(some),
    )
    assert torch.equal(with_zeros.directions, without.directions)
    assert with_zeros.points == len(some) < len(x)


@pytest.mark.parametrize("kind", [KMeans, KMedoids])
def test_one_row_is_one_cluster(kind):
    np.testing.assert_allclose(kind().fit(torch.tensor([[0.0, 3, 4]])).components_, [[0, 0.6, 0.8]], rtol=1e-6)


def test_a_mean_of_opposites_has_no_direction(rng):
    rows = rng.standard_normal((101, 3))
    balanced = torch.from_numpy(rows - rows.mean(0))
    assert 0 < balanced.float().mean(0).norm() < 1e-6  # zero but for rounding
    assert KMeans(n_components=101).fit(balanced).features == 101
    with pytest.raises(UserError, match="opposite rows cancel"):
        KMeans(n_components=1).fit(balanced)


def test_a_search_that_was_stopped_early_says_so():
    x = Superposition(dimensions=12, n_features=20, active=1.5).batch(0, 400).x
    assert KMedoids(n_components=10, iterations=1).fit(x).unconverged == 1
    assert KMedoids(n_components=10).fit(x).unconverged == 0


def test_rows_that_differ_in_the_sign_of_a_zero_are_equal():
    assert KMeans(n_components=9).fit(torch.tensor([[0.0, 1], [-0.0, 1], [1, 0], [1, -0.0]])).features == 2


def test_no_row_is_drawn_twice(rng):
    rows = torch.from_numpy(rng.standard_normal((20, 3)))
    assert KMedoids(n_components=20, points=15).fit(rows).features == 15


def test_distinct_rows_are_counted_up_to_what_is_enough(rng):
    rows = rng.integers(0, 2, (100, 3)).astype(np.float32)
    assert distinct(rows, 50) == len(np.unique(rows, axis=0)) == 8
    assert distinct(rows, 4) == 4
