"""Redundancy of heads at known angles and against sums over all quadruples; how heads are used.
Which head tells which factor, on heads made to tell one, several or none.
Accuracy and the steps to it, counted by hand.
"""

import math
from itertools import permutations

import numpy as np
import pytest
import torch

from unbraid.metrics.attention import between_heads
from unbraid.metrics.heads import (
    FOLDS,
    PENALTIES,
    accuracy,
    between_layers,
    capped_steps_to,
    cka,
    cosine_redundancy,
    effective_rank,
    evenness,
    expected_cosine,
    explained,
    held_out_r2,
    largest_between,
    pooled,
    right,
    separation,
    steps_to,
    usage,
)


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


def peer_predicts(gram: np.ndarray, y: np.ndarray, fitted: np.ndarray, unseen: np.ndarray, ridge: float) -> np.ndarray:
    """By scikit-learn's kernel ridge, with a mean that is fitted, too."""
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.preprocessing import KernelCenterer

    own, across, mean = gram[np.ix_(fitted, fitted)], gram[np.ix_(unseen, fitted)], y[fitted].mean(0)
    centre = KernelCenterer().fit(own)
    peer = KernelRidge(alpha=ridge, kernel="precomputed").fit(centre.transform(own), y[fitted] - mean)
    return peer.predict(centre.transform(across)) + mean


def peer_r2(x: np.ndarray, y: np.ndarray, kernel: str) -> float:
    """On each of four folds from the other three, with the penalty that predicts each story of these best."""
    from sklearn.metrics.pairwise import euclidean_distances
    from sklearn.preprocessing import KernelCenterer

    squares = euclidean_distances(x, squared=True)
    bandwidth = np.sort(squares[np.triu_indices(len(x), 1)])[(len(x) * (len(x) - 1) // 2 - 1) // 2]
    gram = x @ x.T if kernel == "linear" else np.exp(-squares / bandwidth)
    fold, error, total = np.arange(len(x)) % FOLDS, 0.0, 0.0
    for f in range(FOLDS):
        fitted, unseen = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        level = np.trace(KernelCenterer().fit_transform(gram[np.ix_(fitted, fitted)])) / len(fitted)
        misses = []
        for penalty in PENALTIES:
            alone = [peer_predicts(gram, y, fitted[fitted != s], np.array([s]), penalty * level)[0] for s in fitted]
            misses.append(np.square(y[fitted] - alone).sum())
        best = PENALTIES[int(np.argmin(misses))]
        error += np.square(y[unseen] - peer_predicts(gram, y, fitted, unseen, best * level)).sum()
        total += np.square(y[unseen] - y[fitted].mean(0)).sum()
    return 1 - error / total


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_held_out_r2_is_what_scikit_learn_predicts_on_stories_it_has_not_fitted(rng, kernel):
    x = rng.standard_normal((24, 2))
    y = np.stack([x[:, 0] + 0.3 * rng.standard_normal(24), x[:, 1] ** 2], 1)
    found = held_out_r2(torch.from_numpy(np.stack([x, y], 1))[None], kernel)[0]
    assert found[0, 1].item() == pytest.approx(peer_r2(x, y, kernel))
    assert found[1, 0].item() == pytest.approx(peer_r2(y, x, kernel))
    assert found.diagonal().isnan().all()


def test_a_mirrored_head_is_known_a_square_to_the_nonlinear_one_alone_and_an_independent_one_to_neither(rng):
    first, independent = rng.standard_normal((2, 300, 2))
    heads = torch.from_numpy(np.stack([first, -first, first**2 - 1, independent], 1))[None]
    linear, nonlinear = (held_out_r2(heads, kernel)[0, 0] for kernel in ("linear", "rbf"))
    assert linear[1] > 0.99
    assert nonlinear[1] > 0.95
    assert linear[2] < 0.1
    assert nonlinear[2] > 0.7
    assert max(linear[3], nonlinear[3]) < 0.05


def test_held_out_r2_finds_what_cka_cannot_see_in_a_small_direction(rng):
    """The first head says of the second what it says, in a direction of a hundredth of its variance."""
    loud, told = rng.standard_normal((2, 400, 1))
    heads = torch.from_numpy(np.stack([np.hstack([loud, 0.1 * told]), np.hstack([told, 0 * told])], 1))[None]
    assert cka(heads)[0, 0, 1] < 0.05
    assert held_out_r2(heads, "linear")[0, 0, 1] > 0.95


def test_the_largest_dependence_of_independent_heads_is_near_nothing(rng):
    heads = torch.from_numpy(rng.standard_normal((3, 128, 4, 16)))
    for kernel in ("linear", "rbf"):
        assert largest_between(held_out_r2(heads, kernel)).abs().max() < 0.1
    assert held_out_r2(heads[:, :8], "linear").isnan().all()
    heads[0, :, 1] = 0.1
    assert held_out_r2(heads, "linear")[0].isnan().sum() == 4 + 6  # nothing from it, and nothing of it


def test_the_largest_between_heads_leaves_out_the_head_itself_and_what_is_not_known():
    table = torch.tensor([[[9.0, 0.2], [0.4, 9.0]], [[9.0, torch.nan], [0.1, 9.0]], [[9.0, torch.nan]] * 2])
    table[2, 1, 0] = torch.nan
    found = largest_between(table)
    assert found[:2].tolist() == pytest.approx([0.4, 0.1])
    assert found[2].isnan()


def test_redundancy_between_layers_leaves_out_pairs_of_one_layer():
    table = torch.arange(16.0).reshape(1, 4, 4)
    expected = np.mean([2, 3, 6, 7, 8, 9, 12, 13])
    assert between_layers(table, layers=2).item() == expected
    assert between_layers(table, layers=1).isnan().all()


def test_the_effective_rank_is_the_number_of_equal_directions_and_less_of_unequal_ones(rng):
    axes = np.linalg.qr(rng.standard_normal((40, 6)) - rng.standard_normal((40, 6)).mean(0))[0]
    axes = np.linalg.qr(axes - axes.mean(0))[0]
    sizes = np.array([[1, 1, 1, 0, 0, 0], [4, 0, 0, 0, 0, 0], [2, 1, 1, 0, 0, 0], [0] * 6])
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    heads = torch.from_numpy(np.stack([axes * size @ turn + 5 for size in sizes], 1))[None]
    unequal = np.exp(0.5 * np.log(2) + 0.5 * np.log(4))
    np.testing.assert_allclose(effective_rank(heads)[0, :3], [3, 1, unequal], rtol=1e-6)
    assert effective_rank(torch.zeros(1, 9, 2, 3)).tolist() == [[0, 0]]


def test_usage_is_the_share_of_tokens_that_chose_a_head():
    gate = torch.tensor([[[0.7, 0.3, 0], [0, 1.0, 0], [0.5, 0.5, 0]], [[1.0, 0, 0], [0, 0, 1.0], [0, 0, 1.0]]])[None]
    mask = torch.tensor([[True, True, True], [True, True, False]])
    found = usage(gate, mask)
    torch.testing.assert_close(found, torch.tensor([[3 / 5, 3 / 5, 1 / 5]]))
    shares = torch.tensor([3 / 7, 3 / 7, 1 / 7])
    assert evenness(found).item() == pytest.approx(math.exp(-(shares * shares.log()).sum()) / 3)
    torch.testing.assert_close(evenness(torch.tensor([[0.5] * 4, [0, 0, 1.0, 0]])), torch.tensor([1, 0.25]))


def test_a_head_that_is_the_factor_is_explained_and_one_that_ignores_it_is_not(rng):
    values = torch.from_numpy(rng.integers(0, 4, 400))
    means = torch.from_numpy(rng.standard_normal((4, 3)))
    deaf = torch.from_numpy(rng.standard_normal((400, 3)))
    constant = torch.ones(400, 3, dtype=torch.double)
    found = explained(torch.stack([means[values], deaf, constant], 1)[None], values)[0]
    assert found[0].item() == pytest.approx(1)
    assert abs(found[1].item()) < 0.02
    assert found[2].item() == 0


def test_explained_is_one_less_the_ratio_of_variances_of_an_analysis_of_variance(rng):
    """ε² = 1 - MS_within / MS_total, from the one-way F: F = MS_between / MS_within."""
    from scipy.stats import f_oneway

    groups = [rng.standard_normal(size) + shift for size, shift in ((20, 0.0), (35, 1.0), (10, -0.5))]
    z, values = np.concatenate(groups), np.repeat([0, 1, 2], [20, 35, 10])
    f = f_oneway(*groups).statistic
    n, k = len(z), 3
    within = 1 / ((k - 1) * f / (n - k) + 1)  # SS_within / SS_total
    expected = 1 - within * (n - 1) / (n - k)
    found = explained(torch.from_numpy(z)[None, :, None, None], torch.from_numpy(values))
    assert found.item() == pytest.approx(expected)


def test_chance_of_what_is_explained_is_nothing_on_average_however_many_classes(rng):
    found = [
        explained(
            torch.from_numpy(rng.standard_normal((1, 60, 1, 4))), torch.from_numpy(rng.integers(0, 20, 60))
        ).item()
        for _ in range(200)
    ]
    assert abs(np.mean(found)) < 4 * np.std(found) / math.sqrt(200)


def test_tokens_without_a_value_are_left_out(rng):
    z = torch.from_numpy(rng.standard_normal((1, 50, 2, 3)))
    values = torch.from_numpy(rng.integers(0, 3, 50))
    values[::3] = -1
    torch.testing.assert_close(explained(z, values), explained(z[:, values >= 0], values[values >= 0]))
    assert explained(z, torch.zeros(50, dtype=torch.long)).isnan().all()


def test_separation_is_one_for_a_factor_a_head_nothing_for_all_alike_and_between_by_entropy():
    pure, alike = torch.tensor([[0.9, 0, 0], [0, 0.1, 0]]), torch.tensor([[0.3, 0.3, 0.3], [0.1, 0.1, 0.1]])
    half = torch.tensor([[0.4, 0.4, -0.1], [torch.nan, 0.0, 0.0]])
    assert separation(pure[None]).item() == pytest.approx(1)
    assert separation(alike[None]).item() == pytest.approx(0, abs=1e-6)
    assert separation(half[None]).item() == pytest.approx(1 - math.log(2) / math.log(3))
    assert separation(torch.cat([pure, alike])[None]).item() == pytest.approx((0.9 + 0.1) / (1 + 0.9 + 0.3))
    assert separation(pure[None, :, :1]).isnan().all()


def test_an_answer_is_right_where_its_logit_is_the_largest():
    logits = torch.tensor([[[[2.0, 1, 0], [0, 1, 2]]], [[[0.0, 1, 0], [0, 1, 2]]]])
    found = right(logits, torch.tensor([[0, 2]]))
    assert found.tolist() == [[[True, True]], [[False, True]]]
    assert accuracy(found).tolist() == [1, 0.5]


def test_steps_to_a_level_are_those_of_the_first_time_it_is_reached():
    steps, accuracies = torch.tensor([10, 20, 30]), torch.tensor([[0.1, 0.96, 0.9], [0.1, 0.2, 0.95], [0.9, 0.9, 0.9]])
    found = steps_to(0.95, accuracies, steps)
    assert found[:2].tolist() == [20, 30]
    assert found[2].isnan()


def test_capped_steps_count_a_model_that_never_gets_there_as_the_last_step():
    steps, accuracies = torch.tensor([10, 20, 35]), torch.tensor([[0.1, 0.96, 0.9], [0.9, 0.9, 0.9], [0.0, 0.0, 0.95]])
    assert capped_steps_to(0.95, accuracies, steps).tolist() == [20, 35, 35]
