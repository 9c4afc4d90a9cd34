"""What comes again in another dictionary: values by hand, brute force, scipy, and the closed form of chance."""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy import stats

from unbraid.metrics.recovery import expected_best
from unbraid.metrics.stability import (
    code_table,
    direction_table,
    inverse_match,
    match_features,
    matched_correlation,
    matched_values,
    rank_with_truth,
    stable_true,
    truth_of_features,
)


def unit(seed: int, *shape: int) -> torch.Tensor:
    rows = torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))
    return torch.nn.functional.normalize(rows, dim=-1)


def stability(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    table = direction_table(first, second)
    return matched_values(table, match_features(table))


def test_a_dictionary_in_another_order_and_of_other_lengths_comes_again_whole():
    rows, order = unit(0, 9, 5), [4, 0, 8, 2, 6, 1, 3, 7, 5]
    table = direction_table(rows, 3 * rows[order])
    matched = match_features(table)
    assert [order[other] for other in matched.tolist()] == list(range(9))
    np.testing.assert_allclose(matched_values(table, matched), 1, atol=1e-12)


def test_one_to_one_by_hand():
    """0° would have 0°, and so would 30°; only one can: cos 0 + cos 60 is more than cos 30 + cos 90."""
    angles = [torch.tensor(degrees) * torch.pi / 180 for degrees in ([0.0, 30.0], [0.0, 90.0])]
    first, second = (torch.stack([angle.cos(), angle.sin()], 1) for angle in angles)
    np.testing.assert_allclose(stability(first, second), [1.0, 0.5], atol=1e-6)


@pytest.mark.parametrize(("f", "g"), [(4, 4), (3, 5), (5, 3)])
def test_the_matching_is_the_best_of_all_whichever_is_larger(f: int, g: int):
    first, second = unit(1, f, 4), unit(2, g, 4)
    table = (first @ second.T).numpy()
    long = table if f <= g else table.T
    best = max(sum(long[i, j] for i, j in enumerate(o)) for o in permutations(range(max(f, g)), min(f, g)))
    values = stability(first, second)
    assert values.sum().item() == pytest.approx(best)
    assert (values == 0).sum().item() == max(f - g, 0)  # what has no match did not come again


def test_the_matching_seen_from_the_other_side_is_the_same_pairs():
    first, second = unit(3, 7, 4), unit(4, 5, 4)
    matched = match_features(direction_table(first, second))
    back = inverse_match(matched, 5)
    assert {(i, j) for i, j in enumerate(matched.tolist()) if j >= 0} == {(i, j) for j, i in enumerate(back.tolist())}
    assert (inverse_match(back, 7) == matched).all()


def test_where_signs_mean_nothing_the_opposite_direction_is_the_same_one():
    rows = unit(5, 4, 6)
    assert direction_table(rows, -rows).diagonal().tolist() == pytest.approx([-1] * 4)
    assert direction_table(rows, -rows, either_sign=True).diagonal().tolist() == pytest.approx([1] * 4)


def test_correlations_of_codes_are_numpys_and_a_feature_that_never_changes_has_none():
    rng = np.random.default_rng(6)
    first, second = np.maximum(rng.standard_normal((50, 4)), 0), np.maximum(rng.standard_normal((50, 3)), 0)
    first[:, 2], second[:, 0] = 0, 0.7
    table = code_table(torch.from_numpy(first), torch.from_numpy(second)).numpy()
    expected = np.corrcoef(first[:, [0, 1, 3]].T, second[:, 1:].T)[:3, 3:]
    np.testing.assert_allclose(table[[0, 1, 3]][:, 1:], expected, atol=1e-12)
    assert not table[2].any()
    assert not table[:, 0].any()
    matched = torch.tensor([2, -1, 1, 0])
    by_match = matched_correlation(torch.from_numpy(first), torch.from_numpy(second), matched)
    np.testing.assert_allclose(by_match, [table[0, 2], 0, 0, 0], atol=1e-12)


@pytest.mark.parametrize(("f", "g"), [(1, 16), (1, 200), (16, 1)])
def test_chance_of_a_single_feature_has_a_closed_form(f: int, g: int):
    """One random direction against g has the mean of the largest of g cosines; f against one share it among f."""
    draws = [stability(unit(100 + i, f, 32), unit(9000 + i, g, 32)).mean().item() for i in range(800)]
    assert np.mean(draws) == pytest.approx(expected_best(max(f, g), 32) / f, abs=4 * np.std(draws) / 800**0.5)


def test_chance_one_to_one_is_below_the_best_cosine_that_features_may_share():
    first, second = unit(7, 256, 64), unit(8, 256, 64)
    assert 0.2 < stability(first, second).mean().item() < expected_best(256, 64)


def test_how_true_a_feature_is_is_its_cosine_with_the_nearest_true_one():
    truth = torch.eye(3, dtype=torch.float64)
    rows = torch.tensor([[0.6, 0.8, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 2.0]], dtype=torch.float64)
    assert truth_of_features(rows, truth).tolist() == pytest.approx([0.8, 0, 1])
    assert truth_of_features(rows, truth, either_sign=True).tolist() == pytest.approx([0.8, 1, 1])


def test_rank_with_the_truth_is_scipys_spearman_ties_and_all():
    rng = np.random.default_rng(9)
    ours, theirs = rng.integers(0, 6, 40).astype(float), rng.integers(0, 6, 40).astype(float)
    expected = stats.spearmanr(ours, theirs)[0]
    assert rank_with_truth(torch.from_numpy(ours), torch.from_numpy(theirs)) == pytest.approx(expected)
    assert rank_with_truth(torch.tensor([0.1, 0.5, 0.9]), torch.tensor([1.0, 20.0, 21.0])) == pytest.approx(1)
    assert np.isnan(rank_with_truth(torch.ones(3), torch.tensor([1.0, 2.0, 3.0])))


def test_stable_and_true_by_hand():
    stable = torch.tensor([0.95, 0.99, 0.9, 0.2, 0.3])
    true = torch.tensor([0.99, 0.5, 0.91, 0.95, 0.1])
    assert stable_true(stable, true) == pytest.approx((2 / 3, 3 / 5))
    assert np.isnan(stable_true(torch.zeros(5), true)[0])
