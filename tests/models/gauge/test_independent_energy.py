"""The reference of the free energy is right itself: against differences, autograd and the Fisher information."""

import numpy as np
import pytest
import torch
from scipy.special import softmax

from tests.models.gauge.drawn import HEADS, WIDTH, as_torch, blocks, sequence, spread, surroundings
from tests.models.gauge.independent import attention, frames, kl, pairs, transports
from tests.models.gauge.independent_energy import (
    Surroundings,
    divergences,
    energy,
    gradients,
    natural_step,
    numeric_gradients,
    turn_gradient,
)


def test_energy_is_put_together_from_pairs_and_attention(rng):
    means, covariances, phi = sequence(rng, 4)
    values = pairs(means, covariances, transports(phi, HEADS), HEADS).sum(0, keepdims=True)
    beta = attention(values, np.array([2.0]))
    prior = (rng.standard_normal(WIDTH), blocks(rng, HEADS))
    keys = (means[:3], covariances[:3], frames(-phi, HEADS)[:3])
    around = Surroundings(HEADS, frames(phi, HEADS)[2], *keys, *prior, 0.7, 1.3, 2.0)
    expected = 0.7 * kl(means[2], covariances[2], *prior) + 1.3 * (beta * values)[0, 2].sum()
    assert energy(around, means[2], covariances[2]) == pytest.approx(expected, rel=1e-12)


def test_gradients_are_those_of_central_differences(rng):
    for token in range(4):
        around, mean, covariance = surroundings(rng, token)
        by_mean, by_covariance, _ = numeric_gradients(around, mean, covariance)
        told = gradients(around, mean, covariance)
        np.testing.assert_allclose(told[0], by_mean, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(told[1], by_covariance, rtol=1e-6, atol=1e-7)


def test_gradients_are_those_of_autograd(rng):
    around, mean, covariance = surroundings(rng)
    at = [torch.from_numpy(one).requires_grad_() for one in (mean, covariance)]
    law = torch.distributions.MultivariateNormal(at[0], (at[1] + at[1].T) / 2)
    values = []
    for j in range(4):
        omega = around.frame @ around.key_back[j]
        wide = omega @ around.key_covariances[j] @ omega.T
        key = as_torch(omega @ around.key_means[j], (wide + wide.T) / 2)
        values.append(torch.distributions.kl_divergence(law, key))
    values = torch.stack(values)
    prior = torch.distributions.kl_divergence(law, as_torch(around.prior_mean, around.prior_covariance))
    whole = 0.7 * prior + 1.3 * (torch.softmax(-values / 5.0, 0) * values).sum()
    assert energy(around, mean, covariance) == pytest.approx(whole.item(), rel=1e-12)
    for told, true in zip(gradients(around, mean, covariance), torch.autograd.grad(whole, at), strict=True):
        np.testing.assert_allclose(told, true, atol=1e-10)


def test_the_published_sign_is_wrong_where_the_attention_is_not_even(rng):
    """Measured for the seed in three dimensions: numeric (.4875, .6595, .1428) is minus; plus is (.719, .773, .229)."""
    around, mean, covariance = surroundings(rng, prior_weight=0.0, weight=1.0, heads=[1])
    numeric = numeric_gradients(around, mean, covariance)
    right, wrong = (gradients(around, mean, covariance, form) for form in ("corrected", "published"))
    for which in (0, 1):
        np.testing.assert_allclose(right[which], numeric[which], rtol=1e-6, atol=1e-7)
        assert np.abs(wrong[which] - numeric[which]).max() > 0.1 * np.abs(numeric[which]).max()


def test_published_and_corrected_differ_only_by_how_the_attention_moves(rng):
    """Held still, β gives the mean of the two signs in μ, and the published gradient in Σ."""
    around, mean, covariance = surroundings(rng, prior_weight=0.0, weight=1.0)
    held = softmax(-divergences(around, mean, covariance) / around.kappa)
    ends = [[held @ divergences(around, mean + sign * e, covariance) for sign in (1, -1)] for e in 1e-5 * np.eye(WIDTH)]
    right, wrong = (gradients(around, mean, covariance, form) for form in ("corrected", "published"))
    np.testing.assert_allclose(
        (right[0] + wrong[0]) / 2, [(up - down) / 2e-5 for up, down in ends], rtol=1e-6, atol=1e-7
    )
    tilt = 1e-5 * (np.eye(WIDTH) + np.eye(WIDTH)[:, [0, 1, 2, 4, 3, *range(5, WIDTH)]]) / 2
    up, down = (held @ divergences(around, mean, covariance + sign * tilt) for sign in (1, -1))
    assert np.trace(wrong[1] @ tilt) == pytest.approx((up - down) / 2, rel=1e-6)
    alone = {name: getattr(around, name)[:1] for name in ("key_means", "key_covariances", "key_back")}
    one = Surroundings(**{**vars(around), **alone})
    forms = [gradients(one, mean, covariance, form) for form in ("corrected", "published")]
    for right, wrong in zip(*forms, strict=True):
        np.testing.assert_allclose(right, wrong, atol=1e-12)


def test_the_cases_drawn_attend_to_more_than_one_key_and_not_evenly(rng):
    around, mean, covariance = surroundings(rng)
    beta = softmax(-divergences(around, mean, covariance) / around.kappa)
    assert 1.2 < 1 / (beta**2).sum() < 3.5


def test_the_gradient_of_a_turn_is_that_of_turning_the_belief_back(rng):
    for token in range(4):
        around, mean, covariance = surroundings(rng, token, prior_weight=0.0)
        _, _, by_turn = numeric_gradients(around, mean, covariance)
        told = turn_gradient(HEADS, mean, covariance, *gradients(around, mean, covariance))
        np.testing.assert_allclose(told, by_turn, rtol=1e-6, atol=1e-7)
        assert (np.abs(by_turn).max() > 0.05) == (token > 0)


def test_turning_a_frame_with_a_scalar_in_it_does_nothing(rng):
    around, mean, covariance = surroundings(rng, heads=[0, 0])
    np.testing.assert_array_equal(numeric_gradients(around, mean, covariance)[2], 0)


def test_a_key_of_its_own_that_moves_along_changes_no_gradient(rng):
    around, mean, covariance = surroundings(rng)
    free = numeric_gradients(around, mean, covariance)

    def moving(at):
        means = np.array([*around.key_means[:-1], at])
        return energy(Surroundings(**{**vars(around), "key_means": means}), at, covariance)

    moved = [(moving(mean + e) - moving(mean - e)) / 2e-5 for e in 1e-5 * np.eye(WIDTH)]
    np.testing.assert_allclose(moved, free[0], rtol=1e-6, atol=1e-7)


def test_the_step_is_the_gradient_over_the_fisher_information(rng):
    """Fisher information as the curvature of KL(q ‖ q + d) in the numbers of μ and Σ, by differences."""
    mean, covariance = rng.standard_normal(2), spread(rng, 2)
    by_mean, by_covariance = rng.standard_normal(2), spread(rng, 2)

    def belief(at):
        return at[:2], np.array([[at[2], at[3]], [at[3], at[4]]])

    start, step = np.array([*mean, covariance[0, 0], covariance[0, 1], covariance[1, 1]]), 1e-4 * np.eye(5)

    def divergence(d):
        return kl(mean, covariance, *belief(start + d))

    fisher = [
        [(divergence(a + b) - divergence(a - b) - divergence(b - a) + divergence(-a - b)) / 4e-8 for a in step]
        for b in step
    ]
    flat = [*by_mean, by_covariance[0, 0], 2 * by_covariance[0, 1], by_covariance[1, 1]]
    move, wide = belief(-np.linalg.solve(np.array(fisher), flat))
    told = natural_step(mean, covariance, by_mean, by_covariance, 1.0, 1.0, trust=np.inf)
    np.testing.assert_allclose(told[0], move, rtol=1e-4)
    np.testing.assert_allclose(told[1], wide, rtol=1e-4)
    published = natural_step(mean, covariance, by_mean, by_covariance, 1.0, 1.0, trust=np.inf, form="published")
    np.testing.assert_allclose(published[1], wide / 4, rtol=1e-4)


def test_a_long_step_is_shortened_to_two_deviations_and_a_short_one_left(rng):
    _, mean, covariance = surroundings(rng)
    by_mean, by_covariance = rng.standard_normal(WIDTH), np.zeros((WIDTH, WIDTH))
    long, short = (natural_step(mean, covariance, by_mean, by_covariance, s, 0.1)[0] for s in (1e3, 1e-3))
    assert np.linalg.norm(long / np.sqrt(np.diag(covariance))) == pytest.approx(2)
    np.testing.assert_allclose(short, -1e-3 * covariance @ by_mean)
    np.testing.assert_allclose(long / np.linalg.norm(long), short / np.linalg.norm(short))


def test_a_small_step_lowers_the_energy_by_what_the_gradient_says(rng):
    around, mean, covariance = surroundings(rng)
    told = gradients(around, mean, covariance)
    move, wide = natural_step(mean, covariance, *told, 1e-5, 1e-5)
    fall = energy(around, mean + move, covariance + wide) - energy(around, mean, covariance)
    assert fall == pytest.approx(told[0] @ move + np.trace(told[1] @ wide), rel=1e-3)
    assert fall < 0


def test_one_natural_step_of_the_whole_finds_the_prior(rng):
    """With λ = 0 and Σ = Σ_p a step of length 1 lands on the prior's mean."""
    around, mean, _ = surroundings(rng, prior_weight=1.0, weight=0.0)
    told = gradients(around, mean, around.prior_covariance)
    move, wide = natural_step(mean, around.prior_covariance, *told, 1.0, 1.0, trust=np.inf)
    np.testing.assert_allclose(mean + move, around.prior_mean, atol=1e-12)
    np.testing.assert_allclose(wide, 0, atol=1e-12)
