"""Beliefs go down the free energy, each token for itself, by natural gradient; all in the common frame.

    F_i = α KL(q_i ‖ p_i) + λ Σ_j β_ij KL_ij,    β_i = softmax(-KL_i/κ) with KL summed over heads
    ∂F_i/∂m_i = α P_p (m_i - m_p) + λ Σ_j w_ij P_j (m_i - m_j)       w_ij = β_ij (1 - (KL_ij - Σ_k β_ik KL_ik)/κ)
    ∂F_i/∂S_i = ½ α (P_p - P_i) + ½ λ (Σ_j w_ij P_j - P_i)
    m ← m - step · S ∂F/∂m        S ← S - x + ½ x S⁻¹ x,  x = rate · 2 S ∂F/∂S S

w_ij is β_ij with what β itself changes; the published code adds where this subtracts, leaves β as it is in the
gradient of S, and steps ½ in place of 2. The step of m is shortened to `trust` in the length that S gives, that of S
to `covariance_trust`; the second-order step of S leaves it definite whatever its size. A frame that is free turns by
t_a = -⟨∂m, G_a m⟩ - 2⟨∂S, G_a S⟩, the gradient of the λ part alone, and takes belief and prior along.

The w of a row, with u = KL/κ and a = Σ_j β_j u_j, and its gradient by hand, because each array of pairs of tokens that
autograd keeps costs more than the arithmetic (upper signs are right, lower ones published):

    w_j = β_j c_j,   β = softmax(-u),   c_j = 1 ∓ (u_j - a)
    ∂/∂u_j = β_j (g_j (∓1 - c_j) + Σ_k g_k w_k ± (1 - u_j + a) Σ_k g_k β_k)        of Σ g w
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from unbraid.axes import Bool, Float, Tensor
from unbraid.models.gauge.attention import GaugeMask, stacked_queries_keys
from unbraid.models.gauge.beliefs import Beliefs, fold, times, unfold
from unbraid.models.gauge.config import FreeEnergy
from unbraid.models.gauge.frames import Turns, compose, generators, turns

TINY = 1e-12
NATURAL = {"corrected": 2.0, "published": 0.5}


@dataclass(frozen=True)
class Gradient:
    """Of one degree's beliefs: the gradient in means, and in covariances (of the matrix, folded)."""

    mean: Float[Tensor, "m b t h e"]
    covariance: Float[Tensor, "m b t h p"]


@dataclass(frozen=True)
class TokenState:
    """What the tokens of a batch hold: beliefs by degree, the priors they started from, and frames."""

    beliefs: Sequence[Beliefs]
    priors: Sequence[Beliefs]
    frames: Float[Tensor, "m b t 3"]
    turned: Turns
    """What the frames do to each degree."""


def descend_free_energy(
    state: TokenState,
    settings: FreeEnergy,
    step: Float[Tensor, "m"],
    kappa: float,
    mask: GaugeMask,
    used: bool = True,
) -> TokenState:
    """So many steps down; the last covariances are left as they were where nobody uses them."""
    for left in reversed(range(settings.iterations)):
        state = _descend(state, settings, step, kappa, mask, used or left > 0)
    return state


def gradients(
    state: TokenState, settings: FreeEnergy, kappa: float, mask: GaugeMask
) -> tuple[list[Gradient], list[Gradient]]:
    """Of each degree: the gradient of what neighbours say (λ part), and of the prior (α part)."""
    heard = plain = _weighted_precisions(state.beliefs, kappa, mask, -1.0 if settings.sign == "corrected" else 1.0)
    if settings.sign == "published":
        plain = _weighted_precisions(state.beliefs, kappa, mask, 0.0)
    of_alignment = [
        _alignment_gradient(belief, by_mean, by_spread, settings.alignment)
        for belief, by_mean, by_spread in zip(state.beliefs, heard, plain, strict=True)
    ]
    of_prior = [
        _prior_gradient(belief, prior, settings) for belief, prior in zip(state.beliefs, state.priors, strict=True)
    ]
    return of_alignment, of_prior


def _weighted_precisions(beliefs: Sequence[Beliefs], kappa: float, mask: GaugeMask, sign: float) -> list[Tensor]:
    """Σ_j w_ij (P_j, P_j m_j) of each degree, all in one product, a block of queries at a time.

    What of KL_ij depends on i alone is left out: w_i does not change with it.
    """
    said = [torch.cat([belief.precision, belief.weighted], -1) for belief in beliefs]
    values = torch.cat([part.flatten(3) for part in said], -1)
    asked, key = stacked_queries_keys(beliefs)
    key = key / -kappa
    blocks: list[Tensor] = []
    for start, stop in mask.blocks():
        scores = asked[:, :, start:stop] @ key[:, :, :stop].mT
        share = alignment_weights(scores, mask.allowed[:, 0, start:stop, :stop], sign)
        blocks.append(share @ values[:, :, :stop])
    parts = torch.cat(blocks, 2).split([part[0, 0, 0].numel() for part in said], -1)
    return [part.unflatten(-1, like.shape[3:]) for part, like in zip(parts, said, strict=True)]


def _alignment_gradient(
    belief: Beliefs, heard: Float[Tensor, "m b t h n"], plain: Float[Tensor, "m b t h n"], weight: float
) -> Gradient:
    """λ Σ_j w_ij P_j (m_i - m_j), and ½ λ (Σ_j w_ij P_j - P_i)."""
    pairs = belief.precision.shape[-1]
    precision, weighted = heard.split([pairs, belief.width], -1)
    mean = times(unfold(precision, belief.width), belief.mean) - weighted
    return Gradient(weight * mean, 0.5 * weight * (plain[..., :pairs] - belief.precision))


def _prior_gradient(belief: Beliefs, prior: Beliefs, settings: FreeEnergy) -> Gradient:
    """α P_p (m - m_p), and ½ α (P_p - P)."""
    precision = belief.precision if settings.prior_covariance == "current" else prior.precision
    mean = times(unfold(precision, belief.width), belief.mean - prior.mean)
    return Gradient(settings.prior * mean, 0.5 * settings.prior * (precision - belief.precision))


def _descend(
    state: TokenState, settings: FreeEnergy, step: Float[Tensor, "m"], kappa: float, mask: GaugeMask, used: bool
) -> TokenState:
    of_alignment, of_prior = gradients(state, settings, kappa, mask)
    whole = [
        Gradient(a.mean + b.mean, a.covariance + b.covariance) for a, b in zip(of_alignment, of_prior, strict=True)
    ]
    moves = [
        times(unfold(belief.covariance, belief.width), s.mean) for belief, s in zip(state.beliefs, whole, strict=True)
    ]
    lengths = [(move * gradient.mean).sum((-2, -1)) for move, gradient in zip(moves, whole, strict=True)]
    rate = step[:, None, None]
    short = (rate * _within(settings.trust, rate.square() * torch.stack(lengths).sum(0)))[..., None, None]
    beliefs: list[Beliefs] = []
    for belief, move, gradient in zip(state.beliefs, moves, whole, strict=True):
        mean = belief.mean - short * move
        evolves = used and settings.covariance_rate > 0
        beliefs.append(Beliefs(mean, _moved(belief, gradient, settings, rate)) if evolves else belief.with_mean(mean))
    if not settings.frame_step:
        return replace(state, beliefs=beliefs)
    return _turned(replace(state, beliefs=beliefs), state.beliefs, of_alignment, settings.frame_step)


def _moved(
    belief: Beliefs, gradient: Gradient, settings: FreeEnergy, rate: Float[Tensor, "m 1 1"]
) -> Float[Tensor, "m b t h p"]:
    """The covariance after its step, folded."""
    covariance, by_covariance = unfold(belief.covariance, belief.width), unfold(gradient.covariance, belief.width)
    full = NATURAL[settings.sign] * settings.covariance_rate * rate[..., None, None, None]
    whole = full * covariance @ by_covariance  # x S⁻¹
    length = (whole * whole.mT).sum((-2, -1)).clamp_min(0)  # ‖S^-½ x S^-½‖²
    whole = _within(settings.covariance_trust, length)[..., None, None] * whole
    return fold(covariance - whole @ covariance + 0.5 * whole @ whole @ covariance)


def _within(most: float, square: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """What shortens a step of this squared length to at most `most`."""
    return (most / (square + TINY).sqrt()).clamp_max(1)


def _turned(state: TokenState, before: Sequence[Beliefs], of_alignment: Sequence[Gradient], rate: float) -> TokenState:
    """Turn frames down the gradient, and with them all that is written in them."""
    turning = torch.stack(
        [_turning(belief, gradient) for belief, gradient in zip(before, of_alignment, strict=True)]
    ).sum(0)
    angle = rate * turning
    rotations = turns(angle, {belief.degree for belief in before})

    def along(belief: Beliefs) -> Beliefs:
        turn = rotations[belief.degree]
        covariance = turn[:, :, :, None] @ unfold(belief.covariance, belief.width) @ turn.mT[:, :, :, None]
        return Beliefs(belief.mean @ turn.mT, fold(covariance))

    beliefs, priors = ([along(belief) for belief in given] for given in (state.beliefs, state.priors))
    turned = {degree: turn @ rotations[degree].mT for degree, turn in state.turned.items()}
    return TokenState(beliefs, priors, compose(state.frames, -angle), turned)


def _turning(belief: Beliefs, gradient: Gradient) -> Float[Tensor, "m b t 3"]:
    matrices = generators(belief.degree).to(belief.mean)
    means = torch.einsum("mbthi,aij,mbthj->mbta", gradient.mean, matrices, belief.mean)
    covariance, by_covariance = unfold(belief.covariance, belief.width), unfold(gradient.covariance, belief.width)
    return -means - 2 * torch.einsum("mbthik,aij,mbthjk->mbta", by_covariance, matrices, covariance)


def alignment_weights(
    u: Float[Tensor, "m b t s"], allowed: Bool[Tensor, "#b #t s"], sign: float
) -> Float[Tensor, "m b t s"]:
    """The w of each pair; `sign` is -1, or as published 1."""
    return _AlignmentWeights.apply(u, allowed, sign)


class _AlignmentWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, allowed: Tensor, sign: float) -> Tensor:
        beta = torch.neg(u).masked_fill_(~allowed, -torch.inf).softmax(-1)
        apart = u - (beta * u).sum(-1, keepdim=True)
        ctx.save_for_backward(beta, apart)
        ctx.sign = sign
        return torch.mul(apart, sign).add_(1).mul_(beta)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        beta, apart = ctx.saved_tensors
        sign, (given,) = ctx.sign, gradients
        seen = given * beta
        plain = seen.sum(-1, keepdim=True)
        weighed = plain + sign * (seen * apart).sum(-1, keepdim=True)
        turned = (apart * (sign * plain)).add_(weighed - sign * plain).mul_(beta)
        return turned.add_(seen.mul_(torch.mul(apart, -sign).add_(sign - 1))), None, None
