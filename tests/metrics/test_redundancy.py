"""Redundancy of directions at known angles."""

import math

import pytest
import torch

from unbraid.metrics.redundancy import redundancy


def at(*degrees: float) -> torch.Tensor:
    angles = torch.tensor(degrees) * math.pi / 180
    return torch.stack([angles.cos(), angles.sin()], -1)


def test_each_feature_has_its_nearest_and_lengths_and_signs_do_not_matter():
    """The nearest to 0° and 20° is 20° away; to 80° it is 60°."""
    rows = at(0, 20, 80) * torch.tensor([[1.0], [-3.0], [0.5]])
    expected = (2 * math.cos(math.radians(20)) + math.cos(math.radians(60))) / 3
    for block in (1, 2, 1024):
        assert redundancy(rows[None], torch.ones(1, 3, dtype=torch.long), block).item() == pytest.approx(expected)


def test_features_that_never_fire_are_neither_asked_nor_answered():
    rows, counts = at(0, 20, 80, 30).expand(3, 4, 2), torch.tensor([[5, 0, 1, 0], [0, 0, 7, 0], [1, 1, 1, 1]])
    found = redundancy(rows, counts)
    assert found[0].item() == pytest.approx(math.cos(math.radians(80)), abs=1e-6)
    assert found[1].item() == 0
    all_fire = (math.cos(math.radians(20)) + 2 * math.cos(math.radians(10)) + math.cos(math.radians(50))) / 4
    assert found[2].item() == pytest.approx(all_fire, abs=1e-6)
