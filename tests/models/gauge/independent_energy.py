"""The free energy of one token, its gradients and one natural step, in float64 loops from the formulas alone.

    F_i = α KL(q_i ‖ p_i) + λ Σ_j β_ij KL_ij    with    β_ij = softmax_j(−KL_ij/κ),  KL_ij summed over heads

Conventions beside those of `independent.py`:

κ          As given: no rule is applied. The keys are those handed in (a causal caller hands in j ≤ i).
Fixed      The prior p_i stays put when the frame i turns. A key j = i is held where it was; its KL has no first-order
           part, so moving it along gives the same gradients.
g_Σ        The symmetric matrix with dF = tr(g_Σ dΣ): half the derivative in an off-diagonal number, which stands
           twice; its diagonal is the gradient in σ if Σ is diagonal. Zero between heads.
Turn       Left: R_i → exp(δ·G) R_i, at δ = 0. It is not the derivative in the coordinates φ_i.
Published  dβ = +β(g − ḡ)/κ in g_μ in place of minus, no dβ at all in g_Σ, ½ in place of 2 in ΔΣ. (Published also:
           Σ_p is the present Σ_i; hand that in as the prior's. No clip at 1e3 here, and no trust region for Σ.)
Trust      √σ is the root of the diagonal of Σ_i before the step; one length over all heads; all of Δμ is shortened.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.linalg import expm
from scipy.special import softmax

from tests.models.gauge.independent import all_generators, kl, slices_of, transported


@dataclass(frozen=True)
class Surroundings:
    """All that stays fixed while the belief and frame of one token move: its frame before, its keys, its prior."""

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
    """The gradient in δ, −g_μ·G_a μ − tr(g_Σ (G_a Σ − Σ G_a)), from g_μ and g_Σ of the alignment alone (α = 0).

    KL(q ‖ U q_t) = KL(Uᵀ q ‖ q_t): turning the frame is turning the belief the other way.
    """
    turned = [(g @ mean, g @ covariance - covariance @ g) for g in all_generators(heads)]
    return np.array([-by_mean @ moved - np.trace(by_covariance @ spun) for moved, spun in turned])


def natural_step(mean, covariance, by_mean, by_covariance, step, rate, trust=2.0, form="corrected"):
    """Δμ = −step Σ g_μ with ‖Δμ/√σ‖ ≤ trust, and ΔΣ = −rate · 2 Σ g_Σ Σ (published: ½ in place of 2)."""
    move = -step * covariance @ by_mean
    length = np.linalg.norm(move / np.sqrt(np.diag(covariance)))
    factor = 2 if form == "corrected" else 0.5
    return move * min(1.0, trust / max(length, 1e-300)), -rate * factor * covariance @ by_covariance @ covariance
