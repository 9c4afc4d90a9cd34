"""The gradient of the free energy is that of finite differences; the published one is as published, and is not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.models.gauge import independent, independent_energy
from tests.models.gauge.cases import Case
from unbraid.models.gauge.beliefs import Beliefs, unfold
from unbraid.models.gauge.config import FreeEnergy
from unbraid.models.gauge.frames import turns
from unbraid.models.gauge.free_energy import TokenState, alignment_weights, descend_free_energy, gradients

KAPPA, ALPHA, LAMBDA = 4.0, 0.7, 1.3


@pytest.fixture
def case(rng):
    return Case(rng, tokens=5)


@pytest.fixture
def priors(rng, case):
    other = Case(rng, tokens=5)
    other.phi = case.phi
    return other


def held_by(case, priors):
    return TokenState(case.beliefs(), priors.beliefs(), case.frames, turns(case.frames, {0, 1, 2}))


def surroundings(case, priors, token, prior=ALPHA):
    seen = slice(0, token + 1)
    frames = independent.frames(case.phi, case.heads)
    return independent_energy.Surroundings(
        case.heads,
        frames[token],
        case.means[seen],
        case.covariances[seen],
        frames[seen].transpose(0, 2, 1),
        priors.means[token],
        priors.covariances[token],
        prior,
        LAMBDA,
        KAPPA,
    )


def own_slopes(case, parts):
    """Gradients `t d` and `t d d` in tokens' own frames."""
    t, d = case.means.shape
    means, covariances, first = np.zeros((t, d)), np.zeros((t, d, d)), 0
    for (family, _, _), slope in zip(case.own(), parts, strict=True):
        turn = turns(case.frames, {family.degree})[family.degree]
        means[:, family.columns] = (slope.mean @ turn.mT)[0, 0].flatten(1)
        matrix = unfold(slope.covariance, family.width)
        turned = (turn[:, :, :, None] @ matrix @ turn.mT[:, :, :, None])[0, 0]
        for head, block in enumerate(case.owned[first : first + family.heads]):
            covariances[:, block, block] = turned[:, head]
        first += family.heads
    return means, covariances


@pytest.mark.parametrize("sign", ["corrected", "published"])
def test_gradients_are_those_of_finite_differences_or_as_published(sign, case, priors):
    settings = FreeEnergy(prior=ALPHA, alignment=LAMBDA, sign=sign)
    told, drawn = gradients(held_by(case, priors), settings, KAPPA, case.mask())
    means, covariances = (a + b for a, b in zip(own_slopes(case, told), own_slopes(case, drawn), strict=True))
    for token in range(5):
        around = surroundings(case, priors, token)
        numeric = independent_energy.numeric_gradients(around, case.means[token], case.covariances[token])
        by_hand = independent_energy.gradients(around, case.means[token], case.covariances[token], sign)
        np.testing.assert_allclose(means[token], by_hand[0], atol=1e-9)
        np.testing.assert_allclose(covariances[token], by_hand[1], atol=1e-9)
        if sign == "corrected":
            np.testing.assert_allclose(means[token], numeric[0], atol=1e-6)
            np.testing.assert_allclose(covariances[token], numeric[1], atol=1e-6)
        elif token > 0:
            assert np.abs(means[token] - numeric[0]).max() > 1e-2


def test_one_step_is_the_natural_gradient(case, priors):
    """Small enough that no trust region is felt; the covariance's second order is then below what is tested."""
    settings = FreeEnergy(prior=ALPHA, alignment=LAMBDA, covariance_rate=1e-3)
    step = torch.tensor([1e-3], dtype=torch.float64)
    held = held_by(case, priors)
    after = descend_free_energy(held, settings, step, KAPPA, case.mask())
    first = 0
    for (family, _, _), one in zip(case.own(), after.beliefs, strict=True):
        turn = turns(case.frames, {family.degree})[family.degree]
        means = (one.mean @ turn.mT)[0, 0].flatten(1)
        matrix = (turn[:, :, :, None] @ unfold(one.covariance, family.width) @ turn.mT[:, :, :, None])[0, 0]
        for token in range(5):
            around = surroundings(case, priors, token)
            by = independent_energy.gradients(around, case.means[token], case.covariances[token])
            move, grow = independent_energy.natural_step(case.means[token], case.covariances[token], *by, 1e-3, 1e-6)
            np.testing.assert_allclose(means[token], (case.means[token] + move)[family.columns], atol=1e-10)
            for head, block in enumerate(case.owned[first : first + family.heads]):
                expected = (case.covariances[token] + grow)[block, block]
                np.testing.assert_allclose(matrix[token, head], expected, atol=1e-8)
        first += family.heads


def test_frames_turn_down_the_gradient(case, priors):
    """The frame moves by -rate times the gradient in a turn from the left; beliefs in their own frames stay."""
    rate = 1e-4
    settings = FreeEnergy(prior=0.0, alignment=LAMBDA, covariance_rate=0.0, frame_step=rate)
    nothing = torch.full((1,), 1e-12, dtype=torch.float64)
    held = held_by(case, priors)
    after = descend_free_energy(held, settings, nothing, KAPPA, case.mask())
    before, moved = (turns(frames, {1})[1][0, 0] for frames in (case.frames, after.frames))
    for token in range(5):
        around = surroundings(case, priors, token, prior=0.0)
        slope = independent_energy.numeric_gradients(around, case.means[token], case.covariances[token])[2]
        left = (moved[token] @ before[token].T).numpy()
        turn = np.array([left[2, 1] - left[1, 2], left[0, 2] - left[2, 0], left[1, 0] - left[0, 1]]) / 2
        np.testing.assert_allclose(turn, -rate * slope, atol=1e-7 * rate + 1e-10)
    for (family, means, _), one in zip(case.own(), after.beliefs, strict=True):
        own = one.mean @ turns(after.frames, {family.degree})[family.degree].mT
        torch.testing.assert_close(own, means, rtol=0, atol=1e-9)


def test_large_steps_are_shortened_and_leave_covariances_definite(case, priors):
    settings = FreeEnergy(prior=50.0, alignment=50.0, covariance_rate=10.0, iterations=3, trust=0.5)
    step = torch.tensor([10.0], dtype=torch.float64)
    held = held_by(case, priors)
    one = FreeEnergy(**{**settings.to_dict(), "iterations": 1})
    near = descend_free_energy(held, one, step, KAPPA, case.mask())
    lengths = torch.zeros(1, 1, 5, dtype=torch.float64)
    for before, after in zip(held.beliefs, near.beliefs, strict=True):
        apart = after.mean - before.mean
        lengths += torch.einsum("mbthi,mbthij,mbthj->mbt", apart, unfold(before.precision, before.width), apart)
    assert (lengths.sqrt() <= 0.5 + 1e-9).all()
    assert (lengths.sqrt() > 0.4).any()
    far = descend_free_energy(held, settings, step, KAPPA, case.mask())
    for beliefs in far.beliefs:
        assert torch.linalg.eigvalsh(unfold(beliefs.covariance, beliefs.width)).min() > 0


def test_it_falls(case, priors):
    """The free energy of a token whose neighbours stay goes down with its own step."""
    settings = FreeEnergy(prior=ALPHA, alignment=LAMBDA, covariance_rate=1.0)
    step = torch.tensor([0.05], dtype=torch.float64)
    after = descend_free_energy(held_by(case, priors), settings, step, KAPPA, case.mask())
    means, covariances, first = case.means.copy(), case.covariances.copy(), 0
    for (family, _, _), one in zip(case.own(), after.beliefs, strict=True):
        turn = turns(case.frames, {family.degree})[family.degree]
        means[:, family.columns] = (one.mean @ turn.mT)[0, 0].flatten(1)
        matrix = (turn[:, :, :, None] @ unfold(one.covariance, family.width) @ turn.mT[:, :, :, None])[0, 0]
        for head, block in enumerate(case.owned[first : first + family.heads]):
            covariances[:, block, block] = matrix[:, head]
        first += family.heads
    for token in range(5):
        around = surroundings(case, priors, token)
        before = independent_energy.energy(around, case.means[token], case.covariances[token])
        assert independent_energy.energy(around, means[token], covariances[token]) < before


def test_where_all_believe_alike_nothing_moves(rng):
    """Gauge-fixed beliefs have no KL between them, so that only a prior could move them."""
    case = Case(rng, tokens=4)
    frames = independent.frames(case.phi, case.heads)
    case.means, case.covariances = independent.gauge_fixed(frames, case.means[0], case.covariances[0])
    held = held_by(case, case)
    told, drawn = gradients(held, FreeEnergy(), KAPPA, case.mask())
    for slope in (*told, *drawn):
        assert slope.mean.abs().max() < 1e-10
        assert slope.covariance.abs().max() < 1e-10


@pytest.mark.parametrize("sign", [-1.0, 1.0, 0.0])
def test_gradients_through_the_shares_are_right(sign, rng):
    scores = torch.from_numpy(rng.standard_normal((2, 2, 5, 5))).requires_grad_()
    allowed = torch.ones(1, 5, 5, dtype=torch.bool).tril()
    assert torch.autograd.gradcheck(lambda u: alignment_weights(u, allowed, sign), (scores,))


def test_training_sees_through_the_whole_block(rng):
    """Gradients of an outcome with respect to what went in, by finite differences; some look at two others."""
    case, priors = Case(rng, tokens=3), Case(rng, tokens=3)
    priors.phi = case.phi
    settings = FreeEnergy(prior=ALPHA, alignment=LAMBDA, iterations=2, covariance_rate=1.0, frame_step=0.05)
    step = torch.tensor([0.1], dtype=torch.float64, requires_grad=True)
    start = case.beliefs()
    means = [one.mean.clone().requires_grad_() for one in start]
    covariances = [one.covariance.clone().requires_grad_() for one in start]

    def outcome(step, *parts):
        beliefs = [Beliefs(mean, spread) for mean, spread in zip(parts[:3], parts[3:], strict=True)]
        after = descend_free_energy(replace(held_by(case, priors), beliefs=beliefs), settings, step, KAPPA, case.mask())
        return torch.stack([one.mean.sin().sum() + one.covariance.sum() for one in after.beliefs]).sum()

    assert torch.autograd.gradcheck(outcome, (step, *means, *covariances), atol=1e-5)


def test_blocks_of_queries_give_what_all_at_once_give(case, priors, monkeypatch):
    whole = case.mask()
    held, settings = held_by(case, priors), FreeEnergy()
    monkeypatch.setattr("unbraid.models.gauge.attention.BLOCK", 2)
    blocked = replace(whole, causal=True)
    assert (whole.blocks(), blocked.blocks()) == ([(0, 5)], [(0, 2), (2, 4), (4, 5)])
    for one, other in zip(
        gradients(held, settings, KAPPA, whole)[0], gradients(held, settings, KAPPA, blocked)[0], strict=True
    ):
        torch.testing.assert_close(one.mean, other.mean)
        torch.testing.assert_close(one.covariance, other.covariance)
