"""Gauge attention in float64 loops, derived from the formulas alone: what the fast model must equal.

One sequence at a time: means `t d`, covariances `t d d`, frames `t d d`, where d is the whole width K and each head
owns a run of 2ℓ+1 of it. Conventions, where the sources leave a choice:

Basis      Real spherical harmonics as e3nn orders them: ℓ=1 is (x, y, z), the polar axis is y, D(R) Y(v) = Y(R v).
           G_a turns by the right hand about axis a: [G_x, G_y] = G_z and cyclic, Gᵀ = −G, −ΣG² = ℓ(ℓ+1).
           e3nn's own are only good to 1e-7 unless torch's default type is float64; these are float64 always.
Heads      "5x0e+3x1e+1x2e" is nine heads in the order written, copies next to each other; one φ turns them all.
Taylor     Σ_{k≤4} X^k/k!, for exp(φ_i·G) and exp(−φ_j·G) apart: Ω is then not orthogonal and Ω_ii is not 1.
Diagonal   The published transport keeps the diagonal of Ω diag(σ) Ωᵀ, so variances agree with the exact transport of
           a diagonal Σ_j; only the KL (hence β) differs. Off-diagonals of what is given are ignored, also of Σ_i.
KL         In nats, no clamp at 0 and no ε; β has no floor of 1e-8. All three were published; they would hide errors.
β          Row t over keys s ≤ t. Without self, row 0 (where nothing else exists) keeps itself.
κ          "shared": κ·K/11 for every head, K the whole width. "head": κ·√(2ℓ+1).
Mixture    Covariances are matched per head; none is formed between heads: `d d` is block-diagonal.
Alignment  Summed over all t and s of a head, then the mean over batch and heads; never divided by N.
"""

import math
import re

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.linalg import block_diag, expm
from scipy.special import softmax


def heads_of(spec: str) -> list[int]:
    """The ℓ of every head: "2x0e+1x1e" is [0, 0, 1]."""
    heads = []
    for part in spec.split("+"):
        found = re.fullmatch(r"\s*(\d+)x(\d+)e\s*", part)
        assert found is not None, part
        heads += int(found[1]) * [int(found[2])]
    return heads


def slices_of(heads: list[int]) -> list[slice]:
    ends = np.cumsum([2 * degree + 1 for degree in heads])
    return [slice(int(end) - 2 * degree - 1, int(end)) for degree, end in zip(heads, ends, strict=True)]


def generators(degree: int) -> Float[Array, "3 e e"]:
    """G = −iJ in real harmonics, J from the textbook's |ℓ m⟩ (Condon–Shortley); e3nn's x, y, z are its y, z, x."""
    numbers = np.arange(-degree, degree + 1)
    polar = np.diag(numbers).astype(complex)
    raising = np.diag(np.sqrt(degree * (degree + 1.0) - numbers[:-1] * (numbers[:-1] + 1)), -1)
    across, along = (raising + raising.T) / 2, (raising - raising.T) / 2j
    real = np.zeros((2 * degree + 1, 2 * degree + 1), complex)
    real[degree, degree] = 1
    for m in range(1, degree + 1):
        real[degree + m, [degree + m, degree - m]] = np.array([(-1) ** m, 1]) / math.sqrt(2)
        real[degree - m, [degree + m, degree - m]] = np.array([(-1) ** m, -1]) / (1j * math.sqrt(2))
    turned = np.array([-1j * real.conj() @ one @ real.T for one in (along, polar, across)])
    assert np.abs(turned.imag).max() < 1e-12
    return turned.real


def all_generators(heads: list[int]) -> Float[Array, "3 d d"]:
    each = [generators(degree) for degree in heads]
    return np.array([block_diag(*(one[axis] for one in each)) for axis in range(3)])


def exact(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    return expm(matrix)


def taylor(matrix: Float[Array, "d d"], order: int = 4) -> Float[Array, "d d"]:
    return sum((np.linalg.matrix_power(matrix, k) / math.factorial(k) for k in range(order + 1)), 0 * matrix)


def frames(phi: Float[Array, "t 3"], heads: list[int], exponential=exact) -> Float[Array, "t d d"]:
    """R_i = exp(φ_i·G). The way back is frames(−φ): the inverse if exact, the transpose in any case."""
    basis = all_generators(heads)
    return np.array([exponential(sum(one[axis] * basis[axis] for axis in range(3))) for one in phi])


def transports(phi: Float[Array, "t 3"], heads: list[int], exponential=exact) -> Float[Array, "t s d d"]:
    """Ω_ij = exp(φ_i·G) exp(−φ_j·G)."""
    out, back = frames(phi, heads, exponential), frames(-phi, heads, exponential)
    return np.array([[ours @ theirs for theirs in back] for ours in out])


def transported(omega: Float[Array, "d d"], mean: Float[Array, " d"], covariance: Float[Array, "d d"], diagonal=False):
    """Ω μ and Ω Σ Ωᵀ; or, as published, diag_k = Σ_l Ω_kl² σ_l."""
    if diagonal:
        return omega @ mean, np.diag([sum(row**2 * np.diag(covariance)) for row in omega])
    return omega @ mean, omega @ covariance @ omega.T


def kl(mean: Array, covariance: Array, to_mean: Array, to_covariance: Array) -> float:
    """KL(N(mean, covariance) ‖ N(to_mean, to_covariance)) = ½ [tr(S_t⁻¹ S) + dᵀ S_t⁻¹ d − K + log|S_t| − log|S|]."""
    precision, off = np.linalg.inv(to_covariance), to_mean - mean
    logs = np.linalg.slogdet(to_covariance)[1] - np.linalg.slogdet(covariance)[1]
    return 0.5 * float(np.trace(precision @ covariance) + off @ precision @ off - len(mean) + logs)


def pairs(means: Array, covariances: Array, omega: Array, heads: list[int], diagonal=False) -> Float[Array, "h t s"]:
    """KL(q_i ‖ Ω_ij q_j) of every head and every pair, also those that a causal mask hides."""
    length = len(means)
    values = np.zeros((len(heads), length, length))
    for h, own in enumerate(slices_of(heads)):
        for i in range(length):
            ours = np.diag(np.diag(covariances[i][own, own])) if diagonal else covariances[i][own, own]
            for j in range(length):
                there = transported(omega[i, j][own, own], means[j][own], covariances[j][own, own], diagonal)
                values[h, i, j] = kl(means[i][own], ours, *there)
    return values


def temperatures(kappa: float, heads: list[int], rule: str) -> Float[Array, " h"]:
    widths = np.array([2.0 * degree + 1 for degree in heads])
    return {"shared": np.full(len(heads), kappa * widths.sum() / 11), "head": kappa * np.sqrt(widths)}[rule]


def attention(values: Float[Array, "h t s"], kappas: Float[Array, " h"], oneself=True, causal=True):
    """β_ij = softmax over the keys that i may see of −KL_ij/κ_h, as `h t s`."""
    beta = np.zeros_like(values)
    for h, kappa in enumerate(kappas):
        for i in range(values.shape[1]):
            seen = list(range(i + 1)) if causal else list(range(values.shape[2]))
            if not oneself and len(seen) > 1:
                seen.remove(i)
            beta[h, i, seen] = softmax(-values[h, i, seen] / kappa)
    return beta


def messages(means: Array, omega: Array, beta: Float[Array, "h t s"], heads: list[int]) -> Float[Array, "t d"]:
    """m_i = Σ_j β_ij Ω_ij μ_j, the heads side by side."""
    out = np.zeros_like(means)
    for h, own in enumerate(slices_of(heads)):
        for i in range(len(means)):
            out[i, own] = sum(beta[h, i, j] * omega[i, j][own, own] @ means[j][own] for j in range(len(means)))
    return out


def mixed(means: Array, covariances: Array, omega: Array, beta: Array, heads: list[int]) -> Float[Array, "t d d"]:
    """Covariance of the mixture of transported beliefs: Σ_j β_ij (Σ_t + μ_t μ_tᵀ) − m mᵀ; published: its diagonal."""
    centre, out = messages(means, omega, beta, heads), np.zeros_like(covariances)
    for h, own in enumerate(slices_of(heads)):
        for i in range(len(means)):
            second = 0
            for j in range(len(means)):
                mean, spread = transported(omega[i, j][own, own], means[j][own], covariances[j][own, own])
                second = second + beta[h, i, j] * (spread + np.outer(mean, mean))
            out[i][own, own] = second - np.outer(centre[i, own], centre[i, own])
    return out


def gauge_fixed(frame: Float[Array, "t d d"], mean: Float[Array, " d"], covariance: Float[Array, "d d"]):
    """Priors that are one belief in every frame: μ_i = R_i μ_0 and Σ_i = R_i Σ_0 R_iᵀ."""
    return np.array([one @ mean for one in frame]), np.array([one @ covariance @ one.T for one in frame])


def alignment(beta: Float[Array, "b h t s"], values: Float[Array, "b h t s"]) -> float:
    """Σ_ij β_ij KL_ij, the mean over batch and heads."""
    return float((beta * values).sum((2, 3)).mean())


def prior_cost(means: Array, covariances: Array, prior_means: Array, prior_covariances: Array) -> float:
    """KL(q_i ‖ p_i), the mean over batch and tokens; means `b t d`, covariances `b t d d`."""
    b, t, d = means.shape
    flat = [one.reshape(b * t, *[d] * (one.ndim - 2)) for one in (means, covariances, prior_means, prior_covariances)]
    return float(np.mean([kl(*one) for one in zip(*flat, strict=True)]))
