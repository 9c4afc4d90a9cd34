"""Gauge attention and its free energy in float64 loops, derived from the formulas alone: what the fast model must equal.

One sequence at a time: means `t d`, covariances `t d d`, frames `t d d`, where d is the whole width K and each head owns
a run of 2ℓ+1 of it. Conventions, where the sources leave a choice:

Basis      Real spherical harmonics as e3nn orders them: ℓ=1 is (x, y, z), the polar axis is y, D(R) Y(v) = Y(R v). G_a
           turns by the right hand about axis a: [G_x, G_y] = G_z and cyclic (no sign, no factor), Gᵀ = −G, −ΣG² = ℓ(ℓ+1).
           e3nn's own are only good to 1e-7 unless torch's default type is float64; these are exact to 1e-15.
Heads      "5x0e+3x1e+1x2e" is nine heads in the order written, copies next to each other; one φ turns them all.
Taylor     Σ_{k≤4} X^k/k!, for exp(φ_i·G) and exp(−φ_j·G) apart: Ω is then not orthogonal and Ω_ii is not 1.
Diagonal   The published transport keeps the diagonal of Ω diag(σ) Ωᵀ, so variances agree with the exact transport of a
           diagonal Σ_j; only the KL (hence β) differs. Off-diagonals of what is given are ignored there, also of Σ_i.
KL         In nats, no clamp at 0 and no ε. β has no floor of 1e-8. Both were published; they hide errors here.
β          Row t over keys s ≤ t. Without self, row 0 (where nothing else exists) keeps itself.
κ          "shared": κ·K/11 for every head, K the whole width. "head": κ·√(2ℓ+1).
Mixture    Covariances are matched per head: no covariance between heads is ever formed. `d d` is block-diagonal.
Alignment  Summed over all t and s of a head, then the mean over batch and heads; never divided by N.
Energy     One β per token from KL summed over heads, at one κ as given (no rule applied). The prior p_i stays put when the
           frame i turns. A key i = j is held where it was; its KL has no first-order part, so moving it along is the same.
g_Σ        The symmetric matrix with dF = tr(g_Σ dΣ): half the derivative in an off-diagonal number that stands twice;
           its diagonal is the gradient in σ if Σ is diagonal. Zero between heads.
Turn       Left: R_i → exp(δ·G) R_i, at δ = 0. It is not the derivative in the coordinates φ_i.
Published  dβ = +β(g − ḡ)/κ in g_μ in place of minus, no dβ at all in g_Σ, ½ in place of 2 in ΔΣ. (Published also: Σ_p is
           the present Σ_i. Hand that in as the prior's.)
Trust      √σ is the root of the diagonal of Σ_i before the step; one length over all heads; the whole Δμ is shortened.
"""

import math
import re
from dataclasses import dataclass

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
    """From the textbook: J of |ℓ m⟩ (Condon–Shortley), real harmonics, G = −iJ; e3nn's x, y, z are the textbook's y, z, x."""
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
    """Covariance of the mixture of transported beliefs: Σ_j β_ij (Σ_t + μ_t μ_tᵀ) − m mᵀ. Its diagonal is the published one."""
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


@dataclass(frozen=True)
class Surroundings:
    """All that stays fixed while the belief and frame of one token move: its frame before, the keys it sees, its prior."""

    heads: list[int]
    frame: Float[Array, "d d"]
    key_means: Float[Array, "s d"]
    key_covariances: Float[Array, "s d d"]
    key_back: Float[Array, "s d d"]
    prior_mean: Float[Array, " d"]
    prior_covariance: Float[Array, "d d"]
    prior_weight: float
    weight: float
    kappa: float


def keys_at(around: Surroundings, turn) -> list[tuple[Array, Array]]:
    """Ω_ij q_j of every key, the frame turned by exp(δ·G) from the left."""
    basis = all_generators(around.heads)
    frame = expm(sum(turn[axis] * basis[axis] for axis in range(3))) @ around.frame
    keys = zip(around.key_back, around.key_means, around.key_covariances, strict=True)
    return [transported(frame @ back, mean, covariance) for back, mean, covariance in keys]


def divergences(around: Surroundings, mean: Array, covariance: Array, turn=(0, 0, 0)) -> Float[Array, " s"]:
    """KL_ij of every key, summed over heads."""
    owned = slices_of(around.heads)
    return np.array(
        [
            sum(kl(mean[own], covariance[own, own], there[own], spread[own, own]) for own in owned)
            for there, spread in keys_at(around, turn)
        ]
    )


def energy(around: Surroundings, mean: Array, covariance: Array, turn=(0, 0, 0)) -> float:
    """F_i = α KL(q_i ‖ p_i) + λ Σ_j β_ij KL_ij with β_ij = softmax(−KL_ij/κ), as a function of μ_i, Σ_i and δ."""
    values = divergences(around, mean, covariance, turn)
    own = [(mean[s], covariance[s, s]) for s in slices_of(around.heads)]
    to = [(around.prior_mean[s], around.prior_covariance[s, s]) for s in slices_of(around.heads)]
    prior = sum(kl(*q, *p) for q, p in zip(own, to, strict=True))
    return around.prior_weight * prior + around.weight * float(softmax(-values / around.kappa) @ values)


def numeric_gradients(around: Surroundings, mean: Array, covariance: Array, step=1e-5):
    """Central differences of the energy: g_μ, g_Σ and the gradient in the turn δ."""
    unit = np.eye(len(mean)) * step
    by_mean = [energy(around, mean + e, covariance) - energy(around, mean - e, covariance) for e in unit]
    by_covariance = np.zeros_like(covariance)
    for own in slices_of(around.heads):
        for k in range(own.start, own.stop):
            for other in range(own.start, own.stop):
                tilt = np.zeros_like(covariance)
                tilt[k, other] += step / 2
                tilt[other, k] += step / 2
                ends = [energy(around, mean, covariance + sign * tilt) for sign in (1, -1)]
                by_covariance[k, other] = ends[0] - ends[1]
    turns = np.eye(3) * step
    by_turn = [energy(around, mean, covariance, e) - energy(around, mean, covariance, -e) for e in turns]
    return np.array(by_mean) / (2 * step), by_covariance / (2 * step), np.array(by_turn) / (2 * step)


def through_softmax(gradients: Array, values: Array, kappa: float, sign: float) -> Array:
    """Σ_j β_j g_j + Σ_j KL_j dβ_j with dβ_j = sign · β_j (g_j − Σ_k β_k g_k)/κ; the true sign is −1."""
    beta = softmax(-values / kappa)
    average = np.tensordot(beta, gradients, 1)
    return average + sign * np.tensordot(values * beta, gradients - average, 1) / kappa


def gradients(around: Surroundings, mean: Array, covariance: Array, form: str = "corrected"):
    """g_μ and g_Σ by hand: dKL_ij/dμ_i = S_t⁻¹(μ_i − μ_t), dKL_ij/dΣ_i = ½(S_t⁻¹ − Σ_i⁻¹), then through the softmax."""
    values, inverse = divergences(around, mean, covariance), np.linalg.inv(covariance)
    there = [(to, np.linalg.inv(spread)) for to, spread in keys_at(around, (0, 0, 0))]
    each_mean = np.array([precision @ (mean - to) for to, precision in there])
    each_covariance = np.array([(precision - inverse) / 2 for _, precision in there])
    corrected = form == "corrected"
    prior = np.linalg.inv(around.prior_covariance)
    by_mean = through_softmax(each_mean, values, around.kappa, -1 if corrected else 1)
    by_covariance = through_softmax(each_covariance, values, around.kappa, -1 if corrected else 0)
    return (
        around.prior_weight * prior @ (mean - around.prior_mean) + around.weight * by_mean,
        around.prior_weight * (prior - inverse) / 2 + around.weight * by_covariance,
    )


def turn_gradient(heads: list[int], mean: Array, covariance: Array, by_mean: Array, by_covariance: Array) -> Array:
    """The gradient in δ from the *alignment's* g_μ and g_Σ: KL(q ‖ U q_t) = KL(Uᵀ q ‖ q_t), so turning the frame is turning
    the belief the other way: −g_μ·G_a μ − tr(g_Σ (G_a Σ − Σ G_a))."""
    turned = [(g @ mean, g @ covariance - covariance @ g) for g in all_generators(heads)]
    return np.array([-by_mean @ moved - np.trace(by_covariance @ spun) for moved, spun in turned])


def natural_step(mean, covariance, by_mean, by_covariance, step, rate, trust=2.0, form="corrected"):
    """Δμ = −step Σ g_μ with ‖Δμ/√σ‖ ≤ trust, and ΔΣ = −rate · 2 Σ g_Σ Σ (published: ½ in place of 2)."""
    move = -step * covariance @ by_mean
    length = np.linalg.norm(move / np.sqrt(np.diag(covariance)))
    factor = 2 if form == "corrected" else 0.5
    return move * min(1.0, trust / max(length, 1e-300)), -rate * factor * covariance @ by_covariance @ covariance
