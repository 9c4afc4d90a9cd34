"""The overlap of selected pairs by hand, and its chance against every possible selection."""

from itertools import combinations

import numpy as np
import pytest
import torch

from unbraid.metrics.pairs import expected_overlap, overlap, overlap_between, overlaps


def pairs(*rows):
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def test_overlap_is_shared_over_either_whichever_way_round():
    assert overlap(pairs((0, 1), (2, 3), (4, 5)), pairs((1, 0), (5, 4), (6, 7))) == pytest.approx(2 / 4)
    assert overlap(pairs((0, 1)), pairs((1, 0), (0, 1))) == 1
    assert overlap(pairs((0, 1)), pairs((2, 3))) == 0
    assert overlap(pairs((0, 1)), pairs()) == 0
    assert np.isnan(overlap(pairs(), pairs()))


@pytest.mark.parametrize(("ours", "theirs", "possible"), [(2, 3, 6), (1, 1, 5), (4, 4, 6), (5, 2, 6), (0, 2, 6)])
def test_chance_is_the_mean_over_every_selection(ours, theirs, possible):
    fixed = set(range(ours))
    each = [len(fixed & set(one)) / len(fixed | set(one)) for one in combinations(range(possible), theirs)]
    assert expected_overlap(ours, theirs, possible) == pytest.approx(np.mean(each))


def test_chance_is_what_random_selections_overlap(rng):
    possible, size = 5000, 400
    drawn = [set(rng.choice(possible, size, replace=False).tolist()) for _ in range(200)]
    each = [len(a & b) / len(a | b) for a, b in zip(drawn[::2], drawn[1::2], strict=True)]
    error = np.std(each) / np.sqrt(len(each))
    assert expected_overlap(size, size, possible) == pytest.approx(np.mean(each), abs=4 * error)


def test_chance_at_the_seeds_size():
    """2,653 of 2,304·2,303/2 pairs: nearly the share q/(2 - q) of one in a thousand."""
    possible = 2304 * 2303 // 2
    share = 2653 / possible
    assert expected_overlap(2653, 2653, possible) == pytest.approx(share / (2 - share), rel=1e-3)


def test_everything_selected_twice_overlaps_wholly():
    assert expected_overlap(10, 10, 10) == pytest.approx(1)
    assert np.isnan(expected_overlap(0, 0, 10))


def test_steps_are_compared_with_the_step_before():
    found, chance = overlaps([pairs((0, 1)), pairs((0, 1), (1, 2)), pairs((2, 3))], features=4)
    assert found.tolist() == [0.5, 0.0]
    assert chance[0] == pytest.approx(2 / 6 * 1 / 2)
    assert chance[1] == pytest.approx(2 / 6 * 1 / 2)


def test_between_seeds_features_are_matched_first():
    """The other dictionary is ours in another order with two entries of its own: pair by pair the same."""
    ours = torch.eye(6)[:4]
    order = [2, 0, 3, 1]
    others = torch.cat([torch.eye(6)[4:], ours[order]])  # our feature i is theirs at 2 + order.index(i)
    theirs = pairs(*[(2 + order.index(a), 2 + order.index(b)) for a, b in [(0, 1), (2, 3)]], (0, 3))
    found, chance = overlap_between(pairs((0, 1), (2, 3)), theirs, ours, others)
    assert found == 1
    assert chance == pytest.approx(expected_overlap(2, 2, 6))
    unlike, _ = overlap_between(pairs((0, 2), (2, 3)), theirs, ours, others)
    assert unlike == pytest.approx(1 / 3)


def test_a_smaller_dictionary_leaves_out_what_it_has_not():
    """Ours has four features, theirs the first three of them: our pair (0, 3) has no counterpart."""
    ours, others = torch.eye(4), torch.eye(4)[:3]
    found, chance = overlap_between(pairs((0, 1), (0, 3)), pairs((0, 1)), ours, others)
    assert found == 1
    assert chance == pytest.approx(1 / 3)
