"""Beliefs go down the free energy, each token for itself, by natural gradient; all in the common frame.

    F_i = α KL(q_i ‖ p_i) + λ Σ_j β_ij KL_ij,    β_i = softmax(-KL_i/κ) with KL summed over heads
    ∂F_i/∂m_i = α P_p (m_i - m_p) + λ Σ_j w_ij P_j (m_i - m_j)       w_ij = β_ij (1 - (KL_ij - Σ_k β_ik KL_ik)/κ)
    ∂F_i/∂S_i = ½ α (P_p - P_i) + ½ λ (Σ_j w_ij P_j - P_i)
    m ← m - step · S ∂F/∂m        S ← S - x + ½ x S⁻¹ x,  x = rate · 2 S ∂F/∂S S

w_ij is β_ij with what β itself changes; the published code adds where this subtracts, leaves β as it is in the
gradient of S, and steps ½ in place of 2. The step of m is shortened to `trust` in the length that S gives, that of S
to `covariance_trust`; the second-order step of S leaves it definite whatever its size. A frame that is free turns by
t_a = -⟨∂m, G_a m⟩ - 2⟨∂S, G_a S⟩, the gradient of the λ part alone, and takes belief and prior along.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from unbraid.axes import Float, Tensor
from unbraid.models.gauge.attention import Looking, together
from unbraid.models.gauge.beliefs import Beliefs, times
from unbraid.models.gauge.frames import Turns, compose, generators, turns
from unbraid.models.gauge.lifts import fold, unfold
from unbraid.models.gauge.settings import FreeEnergy
from unbraid.models.gauge.shares import heard_shares

TINY = 1e-12
NATURAL = {"corrected": 2.0, "published": 0.5}


@dataclass(frozen=True)
class Slope:
    """Of one degree's beliefs: the gradient in means, and in covariances (of the matrix, folded)."""

    mean: Float[Tensor, "m b t h e"]
    covariance: Float[Tensor, "m b t h p"]


@dataclass(frozen=True)
class Held:
    """What the tokens of a batch hold: beliefs by degree, the priors they started from, and frames."""

    beliefs: Sequence[Beliefs]
    priors: Sequence[Beliefs]
    frames: Float[Tensor, "m b t 3"]
    turned: Turns
    """What the frames do to each degree."""


def settle(
    held: Held,
    settings: FreeEnergy,
    step: Float[Tensor, "m"],
    kappa: float,
    looking: Looking,
    used: bool = True,
) -> Held:
    """So many steps down; the last covariances are left as they were where nobody uses them."""
    for left in reversed(range(settings.iterations)):
        held = _descend(held, settings, step, kappa, looking, used or left > 0)
    return held


def slopes(held: Held, settings: FreeEnergy, kappa: float, looking: Looking) -> tuple[list[Slope], list[Slope]]:
    """Of each degree: the gradient of what neighbours say (λ part), and of the prior (α part)."""
    heard = plain = _heard(held.beliefs, kappa, looking, -1.0 if settings.sign == "corrected" else 1.0)
    if settings.sign == "published":
        plain = _heard(held.beliefs, kappa, looking, 0.0)
    told = [
        _told(one, by_mean, by_spread, settings.alignment)
        for one, by_mean, by_spread in zip(held.beliefs, heard, plain, strict=True)
    ]
    drawn = [_drawn(one, prior, settings) for one, prior in zip(held.beliefs, held.priors, strict=True)]
    return told, drawn


def _heard(beliefs: Sequence[Beliefs], kappa: float, looking: Looking, sign: float) -> list[Tensor]:
    """Σ_j w_ij (P_j, P_j m_j) of each degree, all in one product, a block of queries at a time.

    What of KL_ij depends on i alone is left out: w_i does not change with it.
    """
    said = [torch.cat([one.precision, one.weighted], -1) for one in beliefs]
    values = torch.cat([part.flatten(3) for part in said], -1)
    asked, key = together(beliefs)
    key = key / -kappa
    blocks: list[Tensor] = []
    for start, stop in looking.blocks():
        scores = asked[:, :, start:stop] @ key[:, :, :stop].mT
        share = heard_shares(scores, looking.allowed[:, 0, start:stop, :stop], sign)
        blocks.append(share @ values[:, :, :stop])
    parts = torch.cat(blocks, 2).split([part[0, 0, 0].numel() for part in said], -1)
    return [part.unflatten(-1, like.shape[3:]) for part, like in zip(parts, said, strict=True)]


def _told(one: Beliefs, heard: Float[Tensor, "m b t h n"], plain: Float[Tensor, "m b t h n"], weight: float) -> Slope:
    """λ Σ_j w_ij P_j (m_i - m_j), and ½ λ (Σ_j w_ij P_j - P_i)."""
    pairs = one.precision.shape[-1]
    precision, weighted = heard.split([pairs, one.width], -1)
    mean = times(unfold(precision, one.width), one.mean) - weighted
    return Slope(weight * mean, 0.5 * weight * (plain[..., :pairs] - one.precision))


def _drawn(one: Beliefs, prior: Beliefs, settings: FreeEnergy) -> Slope:
    """α P_p (m - m_p), and ½ α (P_p - P)."""
    precision = one.precision if settings.prior_covariance == "current" else prior.precision
    mean = times(unfold(precision, one.width), one.mean - prior.mean)
    return Slope(settings.prior * mean, 0.5 * settings.prior * (precision - one.precision))


def _descend(
    held: Held, settings: FreeEnergy, step: Float[Tensor, "m"], kappa: float, looking: Looking, used: bool
) -> Held:
    told, drawn = slopes(held, settings, kappa, looking)
    whole = [Slope(a.mean + b.mean, a.covariance + b.covariance) for a, b in zip(told, drawn, strict=True)]
    moves = [times(unfold(one.covariance, one.width), s.mean) for one, s in zip(held.beliefs, whole, strict=True)]
    lengths = [(move * slope.mean).sum((-2, -1)) for move, slope in zip(moves, whole, strict=True)]
    rate = step[:, None, None]
    short = (rate * _within(settings.trust, rate.square() * torch.stack(lengths).sum(0)))[..., None, None]
    beliefs: list[Beliefs] = []
    for one, move, slope in zip(held.beliefs, moves, whole, strict=True):
        mean = one.mean - short * move
        evolves = used and settings.covariance_rate > 0
        beliefs.append(Beliefs(mean, _moved(one, slope, settings, rate)) if evolves else one.with_mean(mean))
    if not settings.frame_step:
        return replace(held, beliefs=beliefs)
    return _turned(replace(held, beliefs=beliefs), held.beliefs, told, settings.frame_step)


def _moved(
    one: Beliefs, slope: Slope, settings: FreeEnergy, rate: Float[Tensor, "m 1 1"]
) -> Float[Tensor, "m b t h p"]:
    """The covariance after its step, folded."""
    covariance, gradient = unfold(one.covariance, one.width), unfold(slope.covariance, one.width)
    full = NATURAL[settings.sign] * settings.covariance_rate * rate[..., None, None, None]
    whole = full * covariance @ gradient  # x S⁻¹
    length = (whole * whole.mT).sum((-2, -1)).clamp_min(0)  # ‖S^-½ x S^-½‖²
    whole = _within(settings.covariance_trust, length)[..., None, None] * whole
    return fold(covariance - whole @ covariance + 0.5 * whole @ whole @ covariance)


def _within(most: float, square: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """What shortens a step of this squared length to at most `most`."""
    return (most / (square + TINY).sqrt()).clamp_max(1)


def _turned(held: Held, before: Sequence[Beliefs], told: Sequence[Slope], rate: float) -> Held:
    """Turn frames down the gradient, and with them all that is written in them."""
    turning = torch.stack([_turning(one, slope) for one, slope in zip(before, told, strict=True)]).sum(0)
    angle = rate * turning
    found = turns(angle, {one.degree for one in before})

    def along(one: Beliefs) -> Beliefs:
        turn = found[one.degree]
        covariance = turn[:, :, :, None] @ unfold(one.covariance, one.width) @ turn.mT[:, :, :, None]
        return Beliefs(one.mean @ turn.mT, fold(covariance))

    beliefs, priors = ([along(one) for one in given] for given in (held.beliefs, held.priors))
    turned = {degree: turn @ found[degree].mT for degree, turn in held.turned.items()}
    return Held(beliefs, priors, compose(held.frames, -angle), turned)


def _turning(one: Beliefs, slope: Slope) -> Float[Tensor, "m b t 3"]:
    matrices = generators(one.degree).to(one.mean.dtype)
    means = torch.einsum("mbthi,aij,mbthj->mbta", slope.mean, matrices, one.mean)
    covariance, gradient = unfold(one.covariance, one.width), unfold(slope.covariance, one.width)
    return -means - 2 * torch.einsum("mbthik,aij,mbthjk->mbta", gradient, matrices, covariance)
