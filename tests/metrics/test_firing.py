"""Sparsity and reconstruction by hand; precision, recall and F1 against scikit-learn's, feature by feature."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, mean_squared_error, precision_score, r2_score, recall_score

from unbraid.codes import Codes
from unbraid.metrics.firing import FiringCounts, Moments, count_firing, dead, density, l0, mean_over_fired


@pytest.fixture
def values(rng):
    values = rng.random((2, 40, 6)) * (rng.random((2, 40, 6)) < [0.9, 0.5, 0.2, 0.05, 0.0, 0.0])
    values[1, 7, 5] = 0.3
    return values


@pytest.fixture
def counts(values):
    return Codes.dense(torch.from_numpy(values)).counts()


def test_density_is_the_share_of_samples_in_which_a_feature_fires(values, counts):
    np.testing.assert_allclose(density(counts, 40).numpy(), (values != 0).mean(1))


def test_l0_is_the_mean_number_active(values, counts):
    np.testing.assert_allclose(l0(counts, 40).numpy(), (values != 0).sum(-1).mean(-1))


def test_dead_features_are_those_that_never_fired(values, counts):
    assert dead(counts).tolist() == [sum(not member[:, f].any() for f in range(6)) for member in values]
    assert dead(counts)[0] >= 2


def test_nothing_fires_in_a_dead_dictionary():
    none = torch.zeros(1, 5, dtype=torch.long)
    assert dead(none).tolist() == [5]
    assert l0(none, 10).tolist() == [0.0]


MEMBERS, SAMPLES, LEARNED, TRUE = 2, 60, 6, 5
MATCHED = torch.tensor([[3, 0, 5, 1, 2], [4, -1, 0, 2, -1]])


@pytest.fixture
def fired(rng):
    """What fired: true feature 4 never, learned feature 2 never."""
    learned, true = rng.random((MEMBERS, SAMPLES, LEARNED)) < 0.4, rng.random((SAMPLES, TRUE)) < 0.3
    learned[..., 2], true[:, 4] = False, False
    learned[0, :, 3] |= true[:, 0]  # one that is nearly right
    return torch.from_numpy(learned), torch.from_numpy(true)


def counted(learned, true, matched):
    """From lists of the true features that fired: every sample's, with unused slots after them."""
    slots = torch.argsort(~true, dim=1, stable=True)[:, : int(true.sum(1).max())]
    fired = true.gather(1, slots)
    partner = matched[:, slots]
    together = learned.gather(-1, partner.clamp_min(0)) & (partner >= 0)
    return count_firing(slots, together, fired, learned.sum(1).gather(1, matched.clamp_min(0)) * (matched >= 0))


def by_sklearn(score, learned, true):
    table = np.full((MEMBERS, TRUE), np.nan)
    for m, t in np.ndindex(table.shape):
        match = MATCHED[m, t]
        guess = learned[m, :, match].numpy() if match >= 0 else np.zeros(SAMPLES, bool)
        table[m, t] = score(true[:, t].numpy(), guess, zero_division=np.nan)
    return table


@pytest.mark.parametrize(
    ("name", "score"), [("precision", precision_score), ("recall", recall_score), ("f1", f1_score)]
)
def test_scores_are_scikit_learns(fired, name, score):
    counts = counted(*fired, MATCHED)
    np.testing.assert_allclose(getattr(counts, name)().numpy(), by_sklearn(score, *fired), rtol=1e-6)


def test_counts_of_parts_add_up(fired):
    learned, true = fired
    whole = counted(learned, true, MATCHED)
    parts = counted(learned[:, :20], true[:20], MATCHED) + counted(learned[:, 20:], true[20:], MATCHED)
    for name in ("together", "learned", "true"):
        assert torch.equal(getattr(whole, name), getattr(parts, name))


def test_a_feature_without_a_match_is_one_whose_match_never_fires(fired):
    counts = counted(*fired, MATCHED)
    assert counts.learned[1, 1] == counts.together[1, 1] == 0
    assert counts.recall()[1, 1] == 0
    assert counts.f1()[1, 1] == 0
    assert counts.precision()[1, 1].isnan()


def test_the_mean_is_over_true_features_that_fired():
    counts = FiringCounts(
        together=torch.tensor([[2, 0, 0, 3]]), learned=torch.tensor([[4, 0, 7, 3]]), true=torch.tensor([[2, 5, 0, 6]])
    )
    assert mean_over_fired(counts.precision(), counts).item() == pytest.approx((2 / 4 + 0 + 3 / 3) / 3)
    assert mean_over_fired(counts.recall(), counts).item() == pytest.approx((2 / 2 + 0 + 3 / 6) / 3)
    assert mean_over_fired(counts.f1(), counts).item() == pytest.approx((4 / 6 + 0 + 6 / 9) / 3)


def test_the_truth_matched_with_itself_scores_one(fired):
    _, true = fired
    counts = counted(true[None], true, torch.arange(TRUE)[None])
    for score in (counts.precision(), counts.recall(), counts.f1()):
        assert mean_over_fired(score, counts).item() == 1


@pytest.fixture
def data(rng):
    """Inputs far from the origin, with dimensions of different spread, and reconstructions from good to bad."""
    x = rng.standard_normal((50, 4)) * [1, 2, 0.1, 5] + [3, -20, 0, 7]
    return x, np.stack([x + noise * rng.standard_normal(x.shape) for noise in (0.0, 0.5, 10.0)])


def moments(x, reconstruction):
    return Moments.of(torch.from_numpy(x), torch.from_numpy(reconstruction))


def test_explained_variance_is_scikit_learns_variance_weighted_r2(data):
    x, reconstructions = data
    expected = [r2_score(x, r, multioutput="variance_weighted") for r in reconstructions]
    np.testing.assert_allclose(moments(x, reconstructions).explained_variance().numpy(), expected, rtol=1e-9)


def test_reconstruction_error_is_scikit_learns_mean_squared_error(data):
    x, reconstructions = data
    expected = [mean_squared_error(x, r) for r in reconstructions]
    np.testing.assert_allclose(moments(x, reconstructions).reconstruction_error().numpy(), expected, rtol=1e-9)


def test_moments_of_parts_add_up(data):
    x, reconstructions = data
    parts = moments(x[:7], reconstructions[:, :7]) + moments(x[7:], reconstructions[:, 7:])
    whole = moments(x, reconstructions)
    np.testing.assert_allclose(parts.explained_variance().numpy(), whole.explained_variance().numpy(), rtol=1e-9)
    assert parts.samples == whole.samples == 50


def test_a_perfect_reconstruction_explains_all_and_the_mean_explains_nothing(data):
    x, _ = data
    answers = np.stack([x, np.broadcast_to(x.mean(0), x.shape)])
    np.testing.assert_allclose(moments(x, answers).explained_variance().numpy(), [1, 0], atol=1e-9)
    assert moments(x, answers).reconstruction_error()[1].item() == pytest.approx(moments(x, answers).variance().item())


def test_variance_is_the_mean_variance_of_a_dimension(data):
    x, reconstructions = data
    assert moments(x, reconstructions).variance().item() == pytest.approx(x.var(0).mean())


def test_small_variance_about_a_large_mean_survives_float32():
    x = (1000 + 0.01 * np.random.default_rng(0).standard_normal((4000, 3))).astype(np.float32)
    found = Moments.of(torch.from_numpy(x), torch.from_numpy(x)[None]).variance().item()
    assert found == pytest.approx(x.astype(float).var(0).mean(), rel=1e-4)
