"""KL attention as dot products is the form over pairs, and neither knows how the whole is turned."""

import numpy as np
import pytest
import torch

from tests.models.gauge import independent
from tests.models.gauge.cases import SPEC, Case
from unbraid.models.gauge.attention import attend, divergences, pattern, patterns, stacked_queries_keys
from unbraid.models.gauge.beliefs import Beliefs, unfold
from unbraid.models.gauge.frames import compose, turns
from unbraid.models.gauge.pairwise import compare, mix, transports

KAPPAS = {0: 0.7, 1: 1.3, 2: 2.0}


def kappa(family):
    return torch.full((1, family.heads), KAPPAS[family.degree], dtype=torch.float64)


@pytest.mark.parametrize("oneself", [True, False])
def test_it_is_the_independent_derivation(oneself, rng):
    case = Case(rng)
    omega, mask = case.omega, case.mask(oneself)
    kl = independent.pairs(case.means, case.covariances, omega, case.heads)
    beta = independent.attention(kl, np.array([KAPPAS[degree] for degree in case.heads]), oneself)
    message = independent.messages(case.means, omega, beta, case.heads)
    mixture = independent.mixed(case.means, case.covariances, omega, beta, case.heads)
    first = 0
    for (family, _, _), one in zip(case.own(), case.beliefs(), strict=True):
        heads, turn = slice(first, first + family.heads), turns(case.frames, {family.degree})[family.degree]
        np.testing.assert_allclose(divergences(one)[0, 0], kl[heads], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(patterns(one, kappa(family), mask)[0, 0], beta[heads], atol=1e-10)
        read = attend(one, kappa(family), mask, covariance=True, expected=True)
        own = (read.mean @ turn.mT)[0, 0].flatten(1)
        np.testing.assert_allclose(own, message[:, family.columns], rtol=1e-10, atol=1e-10)
        spread = turn[:, :, :, None] @ unfold(read.covariance, family.width) @ turn.mT[:, :, :, None]
        for head, block in enumerate(case.owned[heads]):
            np.testing.assert_allclose(spread[0, 0, :, head], mixture[:, block, block], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(read.expected[0, 0].T, (beta * kl)[heads].sum(-1), rtol=1e-9, atol=1e-10)
        first += family.heads
    asked, key = stacked_queries_keys(case.beliefs())
    own_part = kl.sum(0) + (asked @ key.mT)[0, 0].numpy()  # what depends on the query alone
    np.testing.assert_allclose(own_part, np.broadcast_to(own_part[:, :1], own_part.shape), atol=1e-9)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_fast_and_pairwise_agree_in_either_precision(dtype, most, rng):
    case = Case(rng, "4x2e", tokens=24)
    (family, mean, covariance), (one,) = next(case.own()), case.beliefs()
    one = Beliefs(one.mean.to(dtype), one.covariance.to(dtype))
    pairs = compare(mean, covariance, transports(case.frames, 2, "exact"))
    expected, _ = mix(pairs, pattern(pairs.kl, kappa(family), case.mask()))
    turn = turns(case.frames, {2})[2]
    read = attend(one, kappa(family).to(dtype), case.mask()).mean.double() @ turn.mT
    assert (read - expected).norm() / expected.norm() < most


@pytest.mark.parametrize("form", ["exact", "diagonal"])
@pytest.mark.parametrize("exponential", ["exact", "taylor"])
def test_the_form_over_pairs_is_the_independent_derivation(form, exponential, rng):
    case = Case(rng)
    omega = independent.transports(case.phi, case.heads, getattr(independent, exponential))
    kl = independent.pairs(case.means, case.covariances, omega, case.heads, diagonal=form == "diagonal")
    first = 0
    for family, mean, covariance in case.own():
        pairs = compare(mean, covariance, transports(case.frames, family.degree, exponential), form)
        np.testing.assert_allclose(pairs.kl[0, 0], kl[first : first + family.heads], rtol=1e-9, atol=1e-9)
        first += family.heads


def test_a_common_turn_leaves_attention_and_turns_messages(rng):
    """Every frame turned by one g, and every belief with it: β stays, and messages turn by g."""
    case, turned = Case(rng), Case(rng)
    by = np.array([[0.3, -1.1, 0.8]])
    turn = independent.frames(by, case.heads)[0]
    turned.phi = compose(torch.from_numpy(by), torch.from_numpy(case.phi)).numpy()
    turned.means = case.means @ turn.T
    turned.covariances = turn @ case.covariances @ turn.T
    for (family, _, _), one, other in zip(case.own(), case.beliefs(), turned.beliefs(), strict=True):
        look, same = (patterns(each, kappa(family), case.mask()) for each in (one, other))
        torch.testing.assert_close(look, same, rtol=0, atol=1e-12)
        message, moved = (
            (attend(each, kappa(family), case.mask()).mean @ turns(of.frames, {family.degree})[family.degree].mT)
            for each, of in ((one, case), (other, turned))
        )
        g = turns(torch.from_numpy(by), {family.degree})[family.degree]
        torch.testing.assert_close(moved, message @ g.mT, rtol=0, atol=1e-12)


def test_a_gauge_transformation_per_token_changes_nothing_but_each_tokens_own_view(rng):
    """Each token's frame and belief turned by its own g_i: β stays, and the message to i turns by g_i."""
    case, turned = Case(rng), Case(rng)
    each = rng.standard_normal((len(case.phi), 3))
    turn = independent.frames(each, case.heads)
    turned.phi = compose(torch.from_numpy(each), torch.from_numpy(case.phi)).numpy()
    turned.means = np.einsum("tij,tj->ti", turn, case.means)
    turned.covariances = turn @ case.covariances @ turn.transpose(0, 2, 1)
    for (family, _, _), one, other in zip(case.own(), case.beliefs(), turned.beliefs(), strict=True):
        look, same = (patterns(beliefs, kappa(family), case.mask()) for beliefs in (one, other))
        torch.testing.assert_close(look, same, rtol=0, atol=1e-12)
        message, moved = (
            attend(beliefs, kappa(family), case.mask()).mean @ turns(of.frames, {family.degree})[family.degree].mT
            for beliefs, of in ((one, case), (other, turned))
        )
        g = turns(torch.from_numpy(each), {family.degree})[family.degree]
        torch.testing.assert_close(moved[0, 0], message[0, 0] @ g.mT, rtol=0, atol=1e-11)


def test_the_spec_of_the_tests_has_heads_of_three_degrees():
    assert independent.heads_of(SPEC) == [0, 0, 1, 2, 2]
