"""Beliefs go down the free energy, each token for itself, by natural gradient; all in the common frame.

    F_i = α KL(q_i ‖ p_i) + λ Σ_j β_ij KL_ij,    β_i = softmax(-KL_i/κ) with KL summed over heads
    ∂F_i/∂m_i = α P_p (m_i - m_p) + λ Σ_j w_ij P_j (m_i - m_j)       w_ij = β_ij (1 - (KL_ij - Σ_k β_ik KL_ik)/κ)
    ∂F_i/∂S_i = ½ α (P_p - P_i) + ½ λ (Σ_j w_ij P_j - P_i)
    m ← m - step · S ∂F/∂m        S ← S - x + ½ x S⁻¹ x,  x = rate · 2 S ∂F/∂S S

w_ij is β_ij with what β itself changes; the published code adds where this subtracts, and steps ½ in place of 2. The
step of m is shortened to `trust` in the length that S gives, that of S to `covariance_trust`; the second-order step
of S leaves it definite whatever its size. A frame that is free turns by t_a = -⟨∂m, G_a m⟩ - 2⟨∂S, G_a S⟩, the
gradient of the λ part alone, and takes belief and prior along.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from unbraid.axes import Float, Tensor
from unbraid.models.gauge.attention import Looking, divergences
from unbraid.models.gauge.beliefs import Beliefs
from unbraid.models.gauge.frames import compose, generators, turns
from unbraid.models.gauge.lifts import fold, unfold
from unbraid.models.gauge.settings import FreeEnergy

TINY = 1e-12
NATURAL = {"corrected": 2.0, "published": 0.5}


@dataclass(frozen=True)
class Slope:
    """Of one degree's beliefs: the gradient, and how much of it comes from other tokens."""

    mean: Float[Tensor, "m b t h e"]
    covariance: Float[Tensor, "m b t h e e"]


@dataclass(frozen=True)
class Held:
    """What the tokens of a batch hold: beliefs by degree, the priors they started from, and frames."""

    beliefs: Sequence[Beliefs]
    priors: Sequence[Beliefs]
    frames: Float[Tensor, "m b t 3"]


def settle(
    held: Held,
    settings: FreeEnergy,
    step: Float[Tensor, "m"],
    kappa: float,
    looking: Looking,
) -> Held:
    """So many steps down."""
    for _ in range(settings.iterations):
        held = _descend(held, settings, step, kappa, looking)
    return held


def slopes(held: Held, settings: FreeEnergy, kappa: float, looking: Looking) -> tuple[list[Slope], list[Slope]]:
    """Of each degree: the gradient of what neighbours say (λ part), and of the prior (α part)."""
    kl = torch.stack([divergences(one).sum(2) for one in held.beliefs]).sum(0)
    added = torch.where(looking.allowed[:, 0], 0.0, -torch.inf).to(kl.dtype)
    look = (added - kl / kappa).softmax(-1)
    surprise = kl - (look * kl).sum(-1, keepdim=True)
    sign = 1 if settings.sign == "published" else -1
    share = look * (1 + sign * surprise / kappa)
    told = [_told(one, share, settings.alignment) for one in held.beliefs]
    drawn = [_drawn(one, prior, settings) for one, prior in zip(held.beliefs, held.priors, strict=True)]
    return told, drawn


def _told(one: Beliefs, share: Float[Tensor, "m b t s"], weight: float) -> Slope:
    """λ Σ_j w_ij P_j (m_i - m_j), and ½ λ (Σ_j w_ij P_j - P_i)."""
    said = torch.cat([one.precision, one.weighted], -1)
    heard = (share @ said.flatten(3)).unflatten(-1, said.shape[3:])
    folded, weighted = heard.split([one.precision.shape[-1], one.width], -1)
    precision = unfold(folded, one.width)
    mean = (precision @ one.mean[..., None])[..., 0] - weighted
    return Slope(weight * mean, 0.5 * weight * (precision - unfold(one.precision, one.width)))


def _drawn(one: Beliefs, prior: Beliefs, settings: FreeEnergy) -> Slope:
    """α P_p (m - m_p), and ½ α (P_p - P)."""
    precision = unfold(one.precision, one.width)
    belongs = precision if settings.prior_covariance == "current" else unfold(prior.precision, one.width)
    mean = (belongs @ (one.mean - prior.mean)[..., None])[..., 0]
    return Slope(settings.prior * mean, 0.5 * settings.prior * (belongs - precision))


def _descend(held: Held, settings: FreeEnergy, step: Float[Tensor, "m"], kappa: float, looking: Looking) -> Held:
    told, drawn = slopes(held, settings, kappa, looking)
    moves = [
        _natural(one, Slope(a.mean + b.mean, a.covariance + b.covariance))
        for one, a, b in zip(held.beliefs, told, drawn, strict=True)
    ]
    rate = step[:, None, None, None, None]
    length = torch.stack([rate[..., 0, 0].square() * move.length.sum(-1) for move in moves]).sum(0)
    short = _within(settings.trust, length)[..., None, None]
    beliefs: list[Beliefs] = []
    for one, move in zip(held.beliefs, moves, strict=True):
        mean = one.mean - rate * short * move.mean
        beliefs.append(
            Beliefs.of(mean, _moved(one, move, settings, rate)) if settings.covariance_rate else replace_mean(one, mean)
        )
    if not settings.frame_step:
        return Held(beliefs, held.priors, held.frames)
    return _turned(Held(beliefs, held.priors, held.frames), held.beliefs, told, settings.frame_step)


@dataclass(frozen=True)
class _Move:
    """A natural gradient: S ∂m; its squared length in units of S; and S ∂S."""

    mean: Float[Tensor, "m b t h e"]
    length: Float[Tensor, "m b t h"]
    half: Float[Tensor, "m b t h e e"]


def _natural(one: Beliefs, slope: Slope) -> _Move:
    covariance = unfold(one.covariance, one.width)
    mean = (covariance @ slope.mean[..., None])[..., 0]
    return _Move(mean, (mean * slope.mean).sum(-1), covariance @ slope.covariance)


def _moved(one: Beliefs, move: _Move, settings: FreeEnergy, rate: Tensor) -> Float[Tensor, "m b t h p"]:
    """The covariance after its step, folded."""
    whole = NATURAL[settings.sign] * settings.covariance_rate * rate[..., None] * move.half  # x S⁻¹
    length = (whole * whole.mT).sum((-2, -1)).clamp_min(0)  # ‖S^-½ x S^-½‖²
    whole = _within(settings.covariance_trust, length)[..., None, None] * whole
    covariance = unfold(one.covariance, one.width)
    stepped = covariance - whole @ covariance + 0.5 * whole @ whole @ covariance
    return fold(0.5 * (stepped + stepped.mT))


def _within(most: float, square: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """What shortens a step of this squared length to at most `most`."""
    return (most / (square + TINY).sqrt()).clamp_max(1)


def replace_mean(one: Beliefs, mean: Float[Tensor, "m b t h e"]) -> Beliefs:
    """The same covariance about another mean."""
    precision = unfold(one.precision, one.width)
    return replace(one, mean=mean, weighted=(precision @ mean[..., None])[..., 0])


def _turned(held: Held, before: Sequence[Beliefs], told: Sequence[Slope], rate: float) -> Held:
    """Turn frames down the gradient, and with them all that is written in them."""
    turning = torch.stack([_turning(one, slope) for one, slope in zip(before, told, strict=True)]).sum(0)
    angle = rate * turning
    found = turns(angle, {(one.width - 1) // 2 for one in before})

    def along(one: Beliefs) -> Beliefs:
        turn = found[(one.width - 1) // 2]
        covariance = turn[:, :, :, None] @ unfold(one.covariance, one.width) @ turn.mT[:, :, :, None]
        return Beliefs.of(one.mean @ turn.mT, fold(covariance))

    frames = compose(held.frames, -angle)
    return Held([along(one) for one in held.beliefs], [along(one) for one in held.priors], frames)


def _turning(one: Beliefs, slope: Slope) -> Float[Tensor, "m b t 3"]:
    matrices = generators((one.width - 1) // 2).to(one.mean.dtype)
    means = torch.einsum("mbthi,aij,mbthj->mbta", slope.mean, matrices, one.mean)
    covariance = unfold(one.covariance, one.width)
    return -means - 2 * torch.einsum("mbthik,aij,mbthjk->mbta", slope.covariance, matrices, covariance)
