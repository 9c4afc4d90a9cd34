"""The reference of gauge attention is right itself: against e3nn, torch, samples and the figures measured."""

import math

import numpy as np
import pytest
import torch
from e3nn import o3
from scipy.special import softmax
from scipy.stats import multivariate_normal

from tests.models.gauge.drawn import HEADS, WIDTH, as_torch, sequence, spread
from tests.models.gauge.independent import (
    alignment,
    all_generators,
    attention,
    exact,
    frames,
    gauge_fixed,
    generators,
    heads_of,
    kl,
    messages,
    mixed,
    pairs,
    prior_cost,
    slices_of,
    taylor,
    temperatures,
    transported,
    transports,
)


@pytest.fixture
def in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_a_specification_is_a_head_a_copy():
    assert heads_of("5x0e + 3x1e+1x2e") == [0, 0, 0, 0, 0, 1, 1, 1, 2]
    assert [(own.start, own.stop) for own in slices_of([0, 1, 2])] == [(0, 1), (1, 4), (4, 9)]
    assert all_generators(heads_of("5x0e+3x1e+1x2e")).shape == (3, 19, 19)
    assert o3.Irreps("5x0e+3x1e+1x2e").dim == 19


@pytest.mark.parametrize("degree", range(7))
def test_generators_are_those_of_e3nn_and_keep_the_algebra(degree, in_float64):
    x, y, z = mine = generators(degree)
    np.testing.assert_allclose(mine, o3.so3_generators(degree).numpy(), atol=1e-13)
    for a, b, c in ((x, y, z), (y, z, x), (z, x, y)):
        np.testing.assert_allclose(a @ b - b @ a, c, atol=1e-13)
        np.testing.assert_allclose(a, -a.T, atol=1e-15)
    np.testing.assert_allclose(-(x @ x + y @ y + z @ z), degree * (degree + 1) * np.eye(2 * degree + 1), atol=1e-12)


@pytest.mark.parametrize("degree", range(5))
def test_turning_is_the_wigner_matrix_of_e3nn_and_turns_spherical_harmonics(degree, rng, in_float64):
    phi, point = rng.standard_normal(3) * 2, torch.from_numpy(rng.standard_normal(3))
    turn = torch.from_numpy(frames(phi[None], [degree])[0])
    size = torch.tensor(np.linalg.norm(phi))
    rotation = o3.axis_angle_to_matrix(torch.from_numpy(phi) / size, size)
    wigner = o3.wigner_D(degree, *o3.matrix_to_angles(rotation))
    np.testing.assert_allclose(turn, wigner, atol=1e-12)
    before, after = (o3.spherical_harmonics(degree, one, normalize=True) for one in (point, rotation @ point))
    np.testing.assert_allclose(turn @ before, after, atol=1e-12)
    if degree == 1:
        np.testing.assert_allclose(turn, rotation, atol=1e-12)


def test_the_fourth_order_series_errs_by_the_fifth_term(rng):
    """‖φ·G‖ = ℓ|φ|, so halving φ divides the error by 2⁵; at φ = .3 and ℓ = 2 it is near (.6)⁵/5!."""
    phi = np.array([[0.3, 0.0, 0.0]])
    errors = [np.linalg.norm(frames(s * phi, [2]) - frames(s * phi, [2], taylor), 2, (1, 2))[0] for s in (1, 0.5)]
    assert errors[0] == pytest.approx(0.6**5 / 120, rel=0.02)
    assert errors[0] / errors[1] == pytest.approx(2**5, rel=0.02)
    once = taylor(np.array([[1.0]]))
    assert once[0, 0] == pytest.approx(1 + 1 + 1 / 2 + 1 / 6 + 1 / 24)


def test_transport_is_flat_only_if_exact(rng):
    phi = rng.standard_normal((3, 3))
    for exponential, flat in ((exact, True), (taylor, False)):
        omega = transports(phi, HEADS, exponential)
        assert np.allclose(omega[0, 1] @ omega[1, 2] @ omega[2, 0], np.eye(WIDTH), atol=1e-12) is flat
        assert np.allclose(omega[0, 0], np.eye(WIDTH), atol=1e-12) is flat
    back = frames(-phi, HEADS, taylor)
    np.testing.assert_allclose(back, frames(phi, HEADS, taylor).transpose(0, 2, 1), atol=1e-12)


def test_a_transported_belief_is_the_law_of_transported_samples(rng):
    mean, covariance = rng.standard_normal(5), spread(rng, 5)
    omega = transports(rng.standard_normal((2, 3)), [2])[0, 1]
    samples = rng.multivariate_normal(mean, covariance, 200_000) @ omega.T
    there, wide = transported(omega, mean, covariance)
    np.testing.assert_allclose(samples.mean(0), there, atol=0.02)
    np.testing.assert_allclose(np.cov(samples.T), wide, atol=0.03)


def test_the_published_diagonal_is_that_of_the_exact_transport_and_no_more(rng):
    omega = transports(rng.standard_normal((2, 3)), [2])[0, 1]
    variance = np.diag(rng.random(5) + 0.2)
    (_, whole), (_, published) = (transported(omega, np.zeros(5), variance, diagonal) for diagonal in (False, True))
    np.testing.assert_allclose(np.diag(published), np.diag(whole), atol=1e-14)
    assert np.abs(whole - np.diag(np.diag(whole))).max() > 0.05
    assert np.count_nonzero(published) == 5


@pytest.mark.parametrize("size", [1, 3, 5])
def test_kl_is_that_of_torch_and_of_samples(rng, size):
    q, p = ((rng.standard_normal(size), spread(rng, size)) for _ in range(2))
    expected = torch.distributions.kl_divergence(as_torch(*q), as_torch(*p)).item()
    assert kl(*q, *p) == pytest.approx(expected, rel=1e-12)
    samples = rng.multivariate_normal(*q, 100_000)
    told = multivariate_normal(*q).logpdf(samples) - multivariate_normal(*p).logpdf(samples)
    assert kl(*q, *p) == pytest.approx(told.mean(), abs=5 * told.std() / math.sqrt(len(told)))


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("exponential", [exact, taylor])
def test_kl_of_every_pair_and_head_is_that_of_torch(rng, exponential, diagonal):
    means, covariances, phi = sequence(rng)
    if diagonal:
        covariances = covariances * np.eye(WIDTH)
    values = pairs(means, covariances, transports(phi, HEADS, exponential), HEADS, diagonal)
    for h, own in enumerate(slices_of(HEADS)):
        turn = frames(phi, [HEADS[h]], exponential)
        for i in range(5):
            for j in range(5):
                omega = turn[i] @ turn[j].T
                wide = omega @ covariances[j][own, own] @ omega.T
                wide = wide * np.eye(len(wide)) if diagonal else (wide + wide.T) / 2
                there = as_torch(omega @ means[j][own], wide)
                expected = torch.distributions.kl_divergence(as_torch(means[i][own], covariances[i][own, own]), there)
                assert values[h, i, j] == pytest.approx(expected.item(), rel=1e-9, abs=1e-12)


def test_gauge_fixed_priors_have_no_kl_at_all(rng):
    """Measured for the seed: 4e-16 to 1e-15 for ℓ = 1, 2, 3 with random φ. Taylor's error alone makes some."""
    heads = [1, 2, 3]
    phi = rng.standard_normal((6, 3))
    priors = gauge_fixed(frames(phi, heads), rng.standard_normal(15), np.diag(rng.random(15) + 0.5))
    assert np.abs(pairs(*priors, transports(phi, heads), heads)).max() < 1e-14
    short = pairs(*priors, transports(phi, heads, taylor), heads)
    assert short[0].max() > 1e-3


def test_a_change_of_gauge_changes_no_kl(rng):
    """μ_i → U_i μ_i, Σ_i → U_i Σ_i U_iᵀ, R_i → U_i R_i with a U of each token's own: β stays, messages turn."""
    means, covariances, phi = sequence(rng)
    own, turn = frames(phi, HEADS), frames(rng.standard_normal((5, 3)), HEADS)
    omega = transports(phi, HEADS)
    moved = np.array([[turn[i] @ own[i] @ (turn[j] @ own[j]).T for j in range(5)] for i in range(5)])
    turned = (np.einsum("tde,te->td", turn, means), turn @ covariances @ turn.transpose(0, 2, 1))
    before, after = pairs(means, covariances, omega, HEADS), pairs(*turned, moved, HEADS)
    np.testing.assert_allclose(after, before, rtol=1e-10, atol=1e-12)
    beta = attention(before, temperatures(1.0, HEADS, "head"))
    told = messages(turned[0], moved, beta, HEADS)
    np.testing.assert_allclose(told, np.einsum("tde,te->td", turn, messages(means, omega, beta, HEADS)), atol=1e-12)


def test_temperatures_are_those_of_the_seed():
    heads = heads_of("5x0e + 3x1e + 1x2e")
    for base, published in ((0.25, 0.43), (0.005, 0.0086), (0.00025, 0.00043)):
        assert temperatures(base, heads, "shared") == pytest.approx(np.full(9, published), rel=0.01)
    assert temperatures(2.0, heads, "head") == pytest.approx([2.0] * 5 + [2 * 3**0.5] * 3 + [2 * 5**0.5])


def row_deviation(beta):
    shown = np.where(np.eye(len(beta), dtype=bool), np.nan, beta)
    return np.nanstd(shown, axis=1).mean()


@pytest.mark.parametrize(
    ("oneself", "published"),
    [
        (True, {24: 0.0416, 32: 0.0333, 50: 0.0231, 64: 0.0187, 94: 0.0134, 128: 0.0102}),
        (False, {24: 0.0527, 32: 0.0409, 50: 0.0272, 64: 0.0217, 94: 0.0151, 128: 0.0113}),
    ],
)
def test_equal_beliefs_attend_as_uniformly_as_measured(oneself, published):
    for length, expected in published.items():
        beta = attention(np.zeros((1, length, length)), np.ones(1), oneself)[0]
        np.testing.assert_allclose(beta.sum(1), 1)
        assert row_deviation(beta) == pytest.approx(expected, abs=6e-5)


def test_rows_of_uniform_attention_are_as_far_apart_as_measured():
    beta = attention(np.zeros((1, 12, 12)), np.ones(1), oneself=False)[0]
    distances = [np.linalg.norm(beta[i] - beta[j]) for i in range(12) for j in range(12) if i != j]
    assert np.mean(distances) == pytest.approx(0.5003, abs=6e-5)


def test_the_first_token_keeps_itself_and_none_looks_ahead(rng):
    values = rng.random((2, 5, 5))
    for oneself in (True, False):
        beta = attention(values, np.array([0.1, 1.0]), oneself)
        assert np.triu(beta, 1).max() == 0
        assert beta[0, 0, 0] == beta[1, 0, 0] == 1
        assert (beta[:, range(1, 5), range(1, 5)] > 0).all() == oneself
    assert beta[1, 2, 0] / beta[1, 2, 1] == pytest.approx(math.exp(values[1, 2, 1] - values[1, 2, 0]))
    assert beta[0, 2, 0] / beta[0, 2, 1] == pytest.approx(math.exp(10 * (values[0, 2, 1] - values[0, 2, 0])))
    whole = attention(values, np.ones(2), causal=False)
    np.testing.assert_allclose(whole, softmax(-values, axis=2))


def test_kl_attention_is_dot_product_attention_in_the_common_frame(rng):
    """−KL_ij = ⟨S_i + m_i m_iᵀ, −½ P_j⟩ + ⟨m_i, P_j m_j⟩ − ½ (m_jᵀ P_j m_j + log|S_j|) up to terms in i alone."""
    means, covariances, phi = sequence(rng, heads=[2])
    back = frames(-phi, [2])
    m = np.einsum("tde,te->td", back, means)
    s = back @ covariances @ back.transpose(0, 2, 1)
    p = np.linalg.inv(s)
    logs = np.linalg.slogdet(s)[1]
    queries = [[*(s[i] + np.outer(m[i], m[i])).ravel(), *m[i], 1] for i in range(5)]
    keys = [[*(-p[j] / 2).ravel(), *(p[j] @ m[j]), -(m[j] @ p[j] @ m[j] + logs[j]) / 2] for j in range(5)]
    beta = attention(pairs(means, covariances, transports(phi, [2]), [2]), np.array([0.7]), causal=False)[0]
    np.testing.assert_allclose(beta, softmax(np.array(queries) @ np.array(keys).T / 0.7, axis=1), atol=1e-12)
    turned = np.einsum("tde,te->td", frames(phi, [2]), beta @ m)
    np.testing.assert_allclose(messages(means, transports(phi, [2]), beta[None], [2]), turned, atol=1e-12)


def test_messages_and_mixed_covariances_are_those_of_samples(rng):
    means, covariances, phi = sequence(rng, length=3)
    omega = transports(phi, HEADS)
    beta = attention(pairs(means, covariances, omega, HEADS), np.full(len(HEADS), 3.0))
    told, wide = messages(means, omega, beta, HEADS), mixed(means, covariances, omega, beta, HEADS)
    for h, own in enumerate(slices_of(HEADS)):
        parts = []
        for j, count in enumerate(rng.multinomial(200_000, beta[h, 2])):
            law = transported(omega[2, j][own, own], means[j][own], covariances[j][own, own])
            parts.append(rng.multivariate_normal(*law, count))
        samples = np.concatenate(parts)
        np.testing.assert_allclose(told[2, own], samples.mean(0), atol=0.03)
        np.testing.assert_allclose(wide[2][own, own], np.cov(samples.T), atol=0.06)
    np.testing.assert_array_equal(wide[:, slices_of(HEADS)[2], slices_of(HEADS)[3]], 0)


def test_the_first_token_hears_itself_unchanged(rng):
    means, covariances, phi = sequence(rng, length=1)
    beta = np.ones((len(HEADS), 1, 1))
    np.testing.assert_allclose(messages(means, transports(phi, HEADS), beta, HEADS), means, atol=1e-12)
    np.testing.assert_allclose(mixed(means, covariances, transports(phi, HEADS), beta, HEADS), covariances, atol=1e-12)


def test_costs_on_a_case_by_hand():
    """Two stories, two heads, two tokens: only (b, h) = (0, 1) has KL, 4 · ¼ + 8 · ½ = 5; mean over four is 1.25."""
    beta, values = np.zeros((2, 2, 2, 2)), np.zeros((2, 2, 2, 2))
    beta[0, 1], values[0, 1] = [[0.25, 0], [0.5, 0.5]], [[4, 9], [8, 0]]
    assert alignment(beta, values) == pytest.approx(1.25)
    means, wide = np.zeros((2, 2, 3)), np.broadcast_to(np.eye(3), (2, 2, 3, 3))
    far = means.copy()
    far[1, 0] = [2, 0, 0]
    assert prior_cost(means, wide, far, wide) == pytest.approx(2 / 4)
    assert prior_cost(means, wide, means, 4 * wide) == pytest.approx(1.5 * (0.25 - 1 + math.log(4)))
