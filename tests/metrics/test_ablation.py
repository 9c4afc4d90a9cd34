"""Importance of heads from answers counted by hand, and the luck of the largest of many groups."""

import math

import numpy as np
import pytest
import torch

from unbraid.metrics.ablation import (
    FEWEST,
    chance_of_largest_drop,
    importance,
    importance_by_group,
    largest_drop,
    needed,
)


def test_importance_is_the_drop_and_needed_counts_only_what_goes_wrong():
    right = torch.tensor([[True, True, True, False]])
    without = torch.tensor([[[True, True, True, False], [False, False, True, True], [False] * 4]])
    torch.testing.assert_close(importance(right, without), torch.tensor([[0, 1 / 4, 3 / 4]]).double())
    torch.testing.assert_close(needed(right, without), torch.tensor([[0, 2 / 4, 3 / 4]]).double())


def test_a_head_may_matter_little_overall_and_wholly_for_one_group():
    """Of a hundred questions the last twenty go wrong without it."""
    right, groups = torch.ones(1, 100, dtype=torch.bool), torch.arange(100) // 20
    without = (groups < 4)[None, None]
    assert importance(right, without).item() == pytest.approx(0.2)
    assert importance_by_group(right, without, groups)[0, 0].tolist() == [0, 0, 0, 0, 1]
    assert largest_drop(right, without, [torch.zeros(100).long(), groups]).item() == 1


def test_small_groups_and_questions_of_no_group_are_left_out():
    right = torch.ones(1, 2 * FEWEST, dtype=torch.bool)
    groups = torch.cat([torch.zeros(FEWEST), torch.ones(FEWEST - 1), torch.tensor([-1.0])]).long()
    without = (groups == 0)[None, None]
    by_group = importance_by_group(right, without, groups)
    assert by_group[0, 0, 0] == 0
    assert by_group[0, 0, 1].isnan()
    assert largest_drop(right, without, [groups]).item() == 0
    assert largest_drop(right, without, [torch.where(groups == 1, 1, -1)]).isnan().all()


def test_chance_of_the_largest_drop_is_that_of_the_largest_of_so_many_normal_means(rng):
    """Each half of 2n is σ/√(2n) from the mean of all (drawn without return), and so the larger half |·|: σ/√(πn)."""
    n = 400
    right, groups = torch.ones(1, 2 * n, dtype=torch.bool), torch.arange(2 * n) % 2
    without = torch.from_numpy(rng.random((1, 30, 2 * n)) < 0.5)
    found = chance_of_largest_drop(right, without, [groups], np.random.default_rng(1))
    above = (found - importance(right, without)).mean().item()
    assert above == pytest.approx(0.5 / math.sqrt(math.pi * n), rel=0.1)


def test_where_groups_do_not_matter_the_largest_drop_over_several_groupings_is_at_its_chance(rng):
    """The largest of all is dealt anew, not the largest of the means: else the score would lie above by luck alone."""
    right, without = torch.ones(1, 600, dtype=torch.bool), torch.from_numpy(rng.random((1, 300, 600)) < 0.5)
    groupings = [torch.arange(600) % count for count in (2, 4, 6)]
    found = largest_drop(right, without, groupings) - chance_of_largest_drop(
        right, without, groupings, np.random.default_rng(1)
    )
    assert abs(found.mean().item()) < 3 * found.std().item() / math.sqrt(300)
