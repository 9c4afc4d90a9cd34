"""Divergences against numerical integration of the densities, with scipy."""

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from unbraid.dictionaries.variational import SLABS

POSTERIORS = [(0.0, 1.0), (0.0, 0.1), (1.5, 0.3), (-0.7, 0.5), (3.0, 2.0), (0.05, 0.2)]


def log_horseshoe(w):
    """∫ N(w; 0, λ²) 2/(π(1+λ²)) dλ = exp(w²/2) E₁(w²/2) / √(2π³), with exp(u) E₁(u) kept from overflow."""
    u = w**2 / 2
    scaled = special.exp1(u) * np.exp(u) if u < 100 else (1 - 1 / u + 2 / u**2) / u
    return np.log(scaled / np.sqrt(2 * np.pi**3))


def integrated(mean, deviation, log_prior):
    q = stats.norm(mean, deviation)
    low, high = mean - 12 * deviation, mean + 12 * deviation
    points = sorted({min(max(p, low), high) for p in (0.0, -1e-3, 1e-3, mean)})
    return integrate.quad(
        lambda w: q.pdf(w) * (q.logpdf(w) - log_prior(w)), low, high, points=points, limit=500, epsabs=1e-9
    )[0]


def closed(kind, mean, deviation, draw=0.0):
    return float(SLABS[kind](*(torch.tensor(v, dtype=torch.float64) for v in (mean, deviation, draw))))


@pytest.mark.parametrize(("mean", "deviation"), POSTERIORS)
def test_to_a_gaussian(mean, deviation):
    assert closed("gaussian", mean, deviation) == pytest.approx(
        integrated(mean, deviation, stats.norm.logpdf), abs=1e-7
    )


@pytest.mark.parametrize(("mean", "deviation"), POSTERIORS)
def test_to_a_laplace(mean, deviation):
    expected = integrated(mean, deviation, stats.laplace.logpdf)
    assert closed("laplace", mean, deviation) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("w", [0.03, 0.5, 2.0, 7.0])
def test_the_density_of_the_horseshoe_is_its_mixture(w):
    mixture = integrate.quad(lambda s: stats.norm.pdf(w, 0, s) * 2 / (np.pi * (1 + s**2)), 0, np.inf, limit=500)[0]
    assert np.exp(log_horseshoe(w)) == pytest.approx(mixture, rel=1e-6)


@pytest.mark.parametrize(("mean", "deviation"), POSTERIORS)
def test_to_a_horseshoe_it_is_a_bound_at_most_log_2_too_large_estimated_without_bias(mean, deviation):
    """Gauss-Hermite nodes as draws integrate the estimate; near 0 its logarithm wants very many."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(180)
    draws = torch.from_numpy(mean + deviation * nodes)
    estimates = SLABS["horseshoe"](torch.tensor(mean), torch.tensor(deviation, dtype=torch.float64), draws)
    bound = float((estimates.numpy() * weights).sum() / weights.sum())

    def log_lower(w):
        return np.log(np.log1p(4 / (w**2 + 1e-6)) / (2 * np.sqrt(2 * np.pi**3)))

    assert bound == pytest.approx(integrated(mean, deviation, log_lower), abs=0.02)
    exact = integrated(mean, deviation, log_horseshoe)
    assert exact < integrated(mean, deviation, log_lower) < exact + np.log(2)


def test_the_horseshoe_forgives_the_large_and_insists_on_nothing_small():
    """Per unit of |w| the Gaussian's pull grows, Laplace's stays, the horseshoe's falls."""
    pull = {}
    for kind in SLABS:
        w = torch.tensor([1.0, 4.0], dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(SLABS[kind](w, torch.tensor(0.01, dtype=torch.float64), w).sum(), w)
        pull[kind] = slope.tolist()
    assert pull["gaussian"] == pytest.approx([1, 4])
    assert pull["laplace"] == pytest.approx([1, 1])
    assert pull["horseshoe"][1] < pull["horseshoe"][0]


@pytest.mark.parametrize("kind", SLABS)
def test_gradients_are_finite_at_zero(kind):
    mean = torch.zeros(1, requires_grad=True)
    deviation = torch.full((1,), 0.1, requires_grad=True)
    SLABS[kind](mean, deviation, mean + 0 * deviation).sum().backward()
    assert mean.grad.isfinite().all()
    assert deviation.grad.isfinite().all()
