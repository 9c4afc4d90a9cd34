"""Redundancy of heads at known angles and against sums over all quadruples; how heads are used."""

import math
from itertools import permutations

import numpy as np
import pytest
import torch

from unbraid.metrics.attention import between_heads
from unbraid.metrics.heads import cka, cosine_redundancy, evenness, expected_cosine, pooled, usage


def test_a_representation_is_the_mean_over_tokens_that_are_not_padding():
    output = torch.arange(12.0).reshape(1, 1, 2, 3, 2)
    mask = torch.tensor([[True, True, False]])
    torch.testing.assert_close(pooled(output, mask)[0, 0], torch.tensor([[1.0, 2.0], [7.0, 8.0]]))


def test_cosines_have_no_sign_and_no_length():
    angles = torch.tensor([0.0, 60, 170]) * math.pi / 180
    heads = torch.stack([angles.cos(), angles.sin()], -1) * torch.tensor([[1.0], [5.0], [0.1]])
    found = cosine_redundancy(heads.expand(1, 7, 3, 2))
    expected = [abs(math.cos(math.radians(apart))) for apart in (60, 170, 110)]
    assert found[0][(0, 0, 1), (1, 2, 2)].tolist() == pytest.approx(expected)
    assert between_heads(found).item() == pytest.approx(sum(expected) / 3)
    silent = torch.cat([heads, torch.zeros(1, 2)]).expand(1, 7, 4, 2)
    assert cosine_redundancy(silent)[0, 3].tolist() == [0, 0, 0, 0]


def test_chance_of_the_cosine_is_two_over_pi_in_the_plane_and_a_half_in_space(rng):
    assert expected_cosine(2) == pytest.approx(2 / math.pi)
    assert expected_cosine(3) == pytest.approx(1 / 2)
    drawn = torch.from_numpy(rng.standard_normal((1, 4000, 4, 16)))
    assert between_heads(cosine_redundancy(drawn)).item() == pytest.approx(expected_cosine(16), abs=0.004)


def by_quadruples(left: np.ndarray, right: np.ndarray) -> float:
    """The unbiased HSIC as its definition has it: a mean over all quadruples of different samples."""
    k, other = left @ left.T, right @ right.T
    terms = [
        k[i, j] * (other[i, j] + other[q, r] - 2 * other[i, q]) for i, j, q, r in permutations(range(len(left)), 4)
    ]
    return sum(terms) / len(terms)


def test_cka_is_the_ratio_of_unbiased_hsic(rng):
    heads = rng.standard_normal((7, 3, 2)) + 3
    heads[:, 1] += heads[:, 0]
    found = cka(torch.from_numpy(heads)[None])[0]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        left, right = heads[:, one], heads[:, other]
        scale = by_quadruples(left, left) * by_quadruples(right, right)
        assert found[one, other].item() == pytest.approx(by_quadruples(left, right) / math.sqrt(scale))


def test_cka_does_not_see_rotation_shift_or_scale_and_cosine_does(rng):
    first = rng.standard_normal((50, 4))
    turned = 3 * first @ np.linalg.qr(rng.standard_normal((4, 4)))[0] + 1
    heads = torch.from_numpy(np.stack([first, turned], 1))[None]
    assert cka(heads)[0, 0, 1].item() == pytest.approx(1)
    assert cosine_redundancy(heads)[0, 0, 1] < 0.9


def test_chance_of_cka_is_nothing_also_of_few_stories_in_many_dimensions(rng):
    """The plain CKA of these would be about e / (e + n) = 0.6."""
    found = [cka(torch.from_numpy(rng.standard_normal((1, 40, 2, 64))))[0, 0, 1].item() for _ in range(200)]
    error = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found)) < 4 * error
    assert error < 0.01


def test_cka_of_a_head_that_never_varies_is_nothing_and_of_too_few_stories_unknown(rng):
    heads = torch.from_numpy(rng.standard_normal((1, 20, 2, 3)))
    heads[:, :, 1] = 2.5
    assert cka(heads)[0, 0, 1].item() == 0
    assert cka(heads[:, :3]).isnan().all()


def test_usage_is_the_share_of_tokens_that_chose_a_head():
    gate = torch.tensor([[[0.7, 0.3, 0], [0, 1.0, 0], [0.5, 0.5, 0]], [[1.0, 0, 0], [0, 0, 1.0], [0, 0, 1.0]]])[None]
    mask = torch.tensor([[True, True, True], [True, True, False]])
    found = usage(gate, mask)
    torch.testing.assert_close(found, torch.tensor([[3 / 5, 3 / 5, 1 / 5]]))
    shares = torch.tensor([3 / 7, 3 / 7, 1 / 7])
    assert evenness(found).item() == pytest.approx(math.exp(-(shares * shares.log()).sum()) / 3)
    torch.testing.assert_close(evenness(torch.tensor([[0.5] * 4, [0, 0, 1.0, 0]])), torch.tensor([1, 0.25]))
