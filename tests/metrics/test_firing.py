"""Precision, recall and F1 against scikit-learn's, feature by feature."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, precision_score, recall_score

from unbraid.metrics.firing import FiringCounts, count_firing, mean_over_fired

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
