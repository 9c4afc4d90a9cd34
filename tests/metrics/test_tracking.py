"""Fates of true features on cases made by hand."""

import math

import pytest
import torch

from unbraid.metrics.tracking import FATES, best_entry, change, count, fate, fates, mean_change, totals


def named(codes):
    return [FATES[code] for code in codes.flatten().tolist()]


BEFORE = torch.tensor([[0.5, 0.5, 0.95, 0.95, 0.95, 0.9]])
ENTRY_BEFORE = torch.tensor([[0, 1, 2, 3, 4, 5]])
NOW = torch.tensor([[0.6, 0.95, 0.5, 0.96, 0.96, 0.9]])
ENTRY = torch.tensor([[0, 1, 2, 9, 4, 5]])
EXPECTED = ["absent", "learned", "unlearned", "moved", "still", "still"]


def test_each_fate_is_what_its_name_says():
    assert named(fate(BEFORE, ENTRY_BEFORE, NOW, ENTRY)) == EXPECTED


def test_the_threshold_is_what_counts_as_found():
    assert named(fate(BEFORE, ENTRY_BEFORE, NOW, ENTRY, 0.4)) == ["still"] * 3 + ["moved"] + ["still"] * 2
    assert named(fate(BEFORE, ENTRY_BEFORE, NOW, ENTRY, 0.955)) == ["absent"] * 3 + ["learned"] * 2 + ["absent"]


def test_before_the_first_check_nothing_is_found():
    history = fates(torch.stack([BEFORE, NOW], 1), torch.stack([ENTRY_BEFORE, ENTRY], 1))
    assert named(history[:, 0]) == ["absent", "absent", "learned", "learned", "learned", "learned"]
    assert named(history[:, 1]) == EXPECTED


def test_fates_part_the_true_features_at_every_check_and_threshold():
    generator = torch.Generator().manual_seed(0)
    best, entry = torch.rand(2, 5, 40, generator=generator), torch.randint(0, 3, (2, 5, 40), generator=generator)
    for threshold in (0.0, 0.3, 0.9, 1.1):
        assert (count(fates(best, entry, threshold)).sum(-1) == 40).all()


def test_found_now_is_found_before_plus_learned_less_unlearned():
    generator = torch.Generator().manual_seed(1)
    best, entry = torch.rand(2, 6, 40, generator=generator), torch.randint(0, 3, (2, 6, 40), generator=generator)
    counts = count(fates(best, entry, 0.6))
    learned, unlearned = counts[..., FATES.index("learned")], counts[..., FATES.index("unlearned")]
    assert torch.equal((learned - unlearned).cumsum(1), (best >= 0.6).sum(-1))


def test_the_best_entry_is_the_one_most_alike_and_the_first_of_equals():
    truth = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    best, entry = best_entry(truth, torch.tensor([[0.6, 0.8], [3.0, 0.0], [1.0, 0.0], [-1.0, -0.1]]))
    assert entry.tolist() == [1, 0]
    assert best.tolist() == pytest.approx([1.0, 0.8])


@pytest.mark.parametrize(("degrees", "expected"), [(0, 0.0), (60, 0.5), (90, 1.0), (180, 2.0)])
def test_change_is_one_less_the_cosine_of_the_angle_turned(degrees, expected):
    angle = math.radians(degrees)
    turned = 3 * torch.tensor([[math.cos(angle), math.sin(angle)]])
    assert change(torch.tensor([[1.0, 0.0]]), turned).item() == pytest.approx(expected, abs=1e-6)


def test_mean_change_is_over_what_is_still_found():
    history = torch.tensor([[[0, 1, 4, 4]], [[0, 0, 1, 2]]])
    turned = torch.tensor([[[9.0, torch.nan, 0.1, 0.3]], [[9.0, 9.0, 9.0, 9.0]]])
    assert mean_change(turned, history)[0].item() == pytest.approx(0.2)
    assert mean_change(turned, history)[1].isnan().all()


def test_totals_are_of_the_whole_training_and_growths_since_the_middle():
    best = torch.tensor([[[0.1, 0.1, 0.1], [0.95, 0.95, 0.1], [0.95, 0.1, 0.1], [0.95, 0.95, 0.95], [0.95] * 3]])
    entry = torch.tensor([[[0, 1, 2], [0, 1, 2], [0, 1, 2], [5, 1, 2], [5, 1, 2]]])
    turned, dead = torch.full((1, 5, 3), 0.25), torch.tensor([[0, 1, 2, 3, 7]])
    found = {name: value.item() for name, value in totals(fates(best, entry), turned, dead, middle=2).items()}
    assert found == {
        "found": 3,
        "still_learned": 3,
        "still_growth": 3 - 1,
        "learned_total": 4,
        "unlearned_total": 1,
        "moved_total": 1,
        "mean_change": 0.25,
        "dead_growth": 5,
    }
