from itertools import permutations

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.preprocessing import KernelCenterer

from unbraid.metrics.heads import cka, held_out_r2, largest_between
from unbraid.models.constraints import Independence
from unbraid.models.constraints.independence import (
    RIDGE,
    WEIGHTS,
    Conditional,
    club,
    info_nce,
    predictability,
)

STORIES, HEADS = 5, 3


@pytest.fixture
def read(rng):
    return rng.standard_normal((2, STORIES, HEADS, 3, 4))


def pooled(values, mask):
    z = np.zeros((2, STORIES, HEADS, 4))
    for m, b, h in np.ndindex(2, STORIES, HEADS):
        mean = sum(values[m, b, h, t] for t in range(3) if mask[b, t]) / mask[b].sum()
        z[m, b, h] = mean / np.sqrt((mean**2).sum())
    return z


def mask():
    return np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 0]], bool)


def contrast(z):
    """By hand: the published cross-entropy, pair by pair."""
    expected = np.zeros(2)
    for m in range(2):
        for i, j in ((0, 1), (0, 2), (1, 2)):
            for b in range(STORIES):
                scores = [z[m, b, i] @ z[m, c, j] / 0.2 for c in range(STORIES)]
                expected[m] += (np.log(np.exp(scores).sum()) - scores[b]) / (3 * STORIES)
    return expected


def test_published_is_info_nce_and_the_bound_is_what_it_gives(read):
    expected = contrast(pooled(read, mask()))
    given = {"output": torch.from_numpy(read), "mask": torch.from_numpy(mask())}
    np.testing.assert_allclose(Independence(form="published").cost(**given), expected, atol=1e-12)
    np.testing.assert_allclose(
        Independence(form="info_nce_bound").cost(**given), np.log(STORIES) - expected, atol=1e-12
    )


def debiased(left: np.ndarray, right: np.ndarray) -> float:
    """The unbiased HSIC of two kernels: a mean over all quadruples of different stories."""
    terms = [
        left[i, j] * (right[i, j] + right[q, r] - 2 * right[i, q]) for i, j, q, r in permutations(range(len(left)), 4)
    ]
    return sum(terms) / len(terms)


def test_corrected_is_the_ratio_of_debiased_hsic_of_what_kernel_ridge_regression_predicts(rng):
    """S y is what scikit-learn's kernel ridge regression predicts, of any target y."""
    z = rng.standard_normal((1, 12, 3, 1))  # few dimensions: more have nothing that is debiased to predict
    z[:, :, 1] += z[:, :, 0]
    smoothers, kernels = [], []
    for head in range(3):
        rows = z[0, :, head]
        squares = euclidean_distances(rows, squared=True)
        kernel = KernelCenterer().fit_transform(np.exp(-squares / squares.mean()))
        peer = KernelRidge(alpha=RIDGE * np.trace(kernel) / 12, kernel="precomputed").fit(kernel, np.eye(12))
        smoothers.append(peer.predict(kernel))
        kernels.append((rows - rows.mean(0)) @ (rows - rows.mean(0)).T)
    found = predictability(torch.from_numpy(z))[0]
    for i, j in np.ndindex(3, 3):
        expected = debiased(smoothers[i], kernels[j]) / debiased(smoothers[j], kernels[j])
        assert found[i, j].item() == pytest.approx(expected, abs=1e-9)
    given = torch.from_numpy(z)[:, :, :, None]
    apart = [max(found[i, j].item(), 0) for i, j in np.ndindex(3, 3) if i != j]
    cost = Independence().cost(torch.ones(12, 1, dtype=torch.bool), written=given)
    assert cost.item() == pytest.approx(np.mean(apart))


def test_its_expectation_is_nothing_where_heads_are_independent_and_one_where_they_say_the_same(rng):
    """However few the stories: the plain share of ridge regression would be about 16 / 32."""
    found = [predictability(torch.from_numpy(rng.standard_normal((1, 32, 2, 16))))[0, 0, 1].item() for _ in range(300)]
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found)) < 4 * error
    assert error < 0.01
    first = rng.standard_normal((200, 4))
    other = -first @ rng.standard_normal((4, 4)) + 3
    same = predictability(torch.from_numpy(np.stack([first, other, -first], 1))[None])[0]
    assert same[0, 2].item() == pytest.approx(1)
    assert same.min() > 0.6


def test_it_sees_a_small_direction_and_what_is_not_linear(rng):
    loud, told = rng.standard_normal((2, 400, 1))
    z = torch.from_numpy(np.stack([np.hstack([loud, 0.2 * told]), np.hstack([told, 0 * told])], 1))[None]
    assert predictability(z)[0, 0, 1] > 5 * cka(z)[0, 0, 1]
    square = torch.from_numpy(np.stack([loud, loud**2], 1))[None]
    assert predictability(square)[0, 0, 1] > 0.5
    assert cka(square)[0, 0, 1] < 0.05


def descended(z, form):
    """Outputs that are free to go where the cost sends them."""
    constraint = Independence(form=form)
    z = z.clone().requires_grad_()
    adam = torch.optim.Adam([z], 0.02)
    every = torch.ones(z.shape[1], 1, dtype=torch.bool)
    for _ in range(300):
        adam.zero_grad()
        constraint.cost(every, **{constraint.needs[0]: z[:, :, :, None]}).sum().backward()
        adam.step()
    return z.detach()


def dependence(z):
    """The largest held-out R², linear and nonlinear, and the mean cosine."""
    r2 = max(float(largest_between(held_out_r2(z, kernel))) for kernel in ("linear", "rbf"))
    return r2, float(torch.nn.functional.cosine_similarity(z[0, :, 0], z[0, :, 1], dim=-1).mean())


@pytest.mark.parametrize("form", ["corrected", "club"])
def test_independent_heads_stay_so_and_equal_ones_become_so_without_mirroring(rng, form):
    independent = torch.from_numpy(rng.standard_normal((1, 128, 2, 4)))
    r2, cosine = dependence(descended(independent, form))
    assert r2 < 0.05
    assert abs(cosine) < 0.2
    equal = independent[:, :, :1] + 0.1 * torch.from_numpy(rng.standard_normal((1, 128, 2, 4)))
    assert dependence(equal)[0] > 0.9
    r2, cosine = dependence(descended(equal, form))
    assert r2 < 0.15
    assert abs(cosine) < 0.5


@pytest.mark.parametrize(("form", "ends"), [("published", 1), ("info_nce_bound", -1)])
def test_either_sign_of_info_nce_makes_independent_heads_dependent(rng, form, ends):
    """What the docstrings say of them."""
    r2, cosine = dependence(descended(torch.from_numpy(rng.standard_normal((1, 128, 2, 4))), form))
    assert r2 > 0.7
    assert cosine == pytest.approx(ends, abs=0.02)


def test_club_is_not_met_by_heads_that_say_the_same_of_every_story_and_that_of_unit_length_is(rng):
    """A cost that has no scale of its own falls when heads shrink towards their mean."""
    z = torch.from_numpy(rng.standard_normal((1, 64, 2, 4)))
    z[:, :, 1] += z[:, :, 0]
    read = (z + 3)[:, :, :, None].requires_grad_()
    away = read.detach() - read.detach().mean(1, keepdim=True)
    every = torch.ones(64, 1, dtype=torch.bool)
    slopes = {}
    for form in ("club", "club_unit_length"):
        (gradient,) = torch.autograd.grad(Independence(form=form).cost(every, output=read).sum(), read)
        slopes[form] = float((gradient * away).sum())
    assert abs(slopes["club"]) < 1e-6 < 0.1 < slopes["club_unit_length"]


def test_the_default_weight_is_that_of_the_form():
    weights = {form: Independence(form=form).weight for form in ("corrected", "club", "published")}
    assert weights == {**WEIGHTS, "published": 0.05}
    assert Independence().weight == WEIGHTS["corrected"]
    assert Independence(form="club", weight=2.0).weight == 2


def test_info_nce_stays_below_the_information_there_is(rng):
    """A fair sign shared by both heads is log 2 nats; the bound must not pass it, and finds most of it."""
    sign = rng.choice([-1.0, 1.0], 4000)
    z = torch.from_numpy(np.stack([np.stack([sign, 0 * sign], -1)] * 2, 1)[None])
    bound = np.log(4000) - float(info_nce(z, 0.2))
    assert 0.6 < bound < np.log(2) + 0.01


def test_the_conditional_is_a_ridge_regression(rng):
    z = rng.standard_normal((1, 40, 2, 3)) @ rng.standard_normal((3, 3))
    q = Conditional.of(torch.from_numpy(z))
    for i, j in np.ndindex(2, 2):
        x, y = z[0, :, i], z[0, :, j]
        peer = Ridge(alpha=40 * RIDGE * x.var(0).mean()).fit(x, y)
        columns = slice(3 * j, 3 * j + 3)
        np.testing.assert_allclose(q.slope[0, i, :, columns], peer.coef_.T, atol=1e-6)
        np.testing.assert_allclose(q.shift[0, i, 0, columns], peer.intercept_, atol=1e-6)
        left = ((y - peer.predict(x)) ** 2).mean(0) + RIDGE * y.var(0)
        np.testing.assert_allclose(q.variance[0, i, 0, columns], left, atol=1e-6)


def test_club_is_the_gain_of_ones_own_story_over_all(rng):
    z = rng.standard_normal((2, STORIES, HEADS, 4))
    q = Conditional.of(torch.from_numpy(z))
    slope, shift, variance = (part.numpy() for part in (q.slope, q.shift, q.variance))
    expected = np.zeros(2)
    for m, i, j in np.ndindex(2, HEADS, HEADS):
        if i == j:
            continue
        own = slice(4 * j, 4 * j + 4)
        for b, c in np.ndindex(STORIES, STORIES):
            centre = z[m, b, i] @ slope[m, i, :, own] + shift[m, i, 0, own]
            of = [-((z[m, s, j] - centre) ** 2 / (2 * variance[m, i, 0, own])).sum() for s in (b, c)]
            expected[m] += (of[0] - of[1]) / (STORIES**2 * HEADS * (HEADS - 1))
    np.testing.assert_allclose(club(torch.from_numpy(z), q), expected, atol=1e-12)


def test_club_lies_above_the_information_of_gaussian_heads_and_near_nothing_without_any(rng):
    """One dimension each, correlation ρ: the information is -½ log(1-ρ²)."""
    x, noise = rng.standard_normal((2, 20_000))
    for correlation in (0.0, 0.5, 0.8):
        y = correlation * x + np.sqrt(1 - correlation**2) * noise
        z = torch.from_numpy(np.stack([x, y], 1)[None, :, :, None])
        bound, known = float(club(z, Conditional.of(z))), -0.5 * np.log(1 - correlation**2)
        assert bound < 0.01 if correlation == 0 else bound > known
