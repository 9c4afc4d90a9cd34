"""Attention pair by pair, as it is defined: slow, the specification of the fast form, and the published approximations.

    Ω_ij = exp(φ_i·G) exp(-φ_j·G)        Σ_j→i = Ω_ij Σ_j Ω_ijᵀ        β_ij = softmax_j(-KL(q_i ‖ N(Ω_ij μ_j, Σ_j→i))/κ)
    mean_i = Σ_j β_ij Ω_ij μ_j           covariance_i = Σ_j β_ij (Σ_j→i + Ω_ij μ_j μ_jᵀ Ω_ijᵀ) - mean_i mean_iᵀ

Everything here is in tokens' own frames. `diagonal` keeps of Σ_j→i its diagonal (Σ_l Ω_kl² σ_l) and takes it as such
in the KL: this does not factor into queries and keys. `taylor` cuts the exponential off, after which Ω_ij is no
rotation.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from unbraid.axes import Float, Tensor
from unbraid.models.gauge.frames import taylor, turns


@dataclass(frozen=True)
class Pairs:
    """Of the heads of one degree: what every token's belief is to every other."""

    mean: Float[Tensor, "m b t s h e"]
    covariance: Float[Tensor, "m b t s h e e"]
    kl: Float[Tensor, "m b h t s"]


def transports(
    frames: Float[Tensor, "m b t 3"], degree: int, exponential: Literal["exact", "taylor"]
) -> Float[Tensor, "m b t s e e"]:
    """Ω_ij of all pairs."""
    if exponential == "taylor":
        there, back = taylor(frames, degree), taylor(-frames, degree)
    else:
        there, back = (turns(sign * frames, {degree})[degree] for sign in (1, -1))
    return there[:, :, :, None] @ back[:, :, None]


def compare(
    mean: Float[Tensor, "m b t h e"],
    covariance: Float[Tensor, "m b t h e e"],
    transport: Float[Tensor, "m b t s e e"],
    form: Literal["exact", "diagonal"] = "exact",
) -> Pairs:
    """Transport every belief to every token, and take the KL there."""
    if form == "diagonal":
        covariance = torch.diag_embed(covariance.diagonal(0, -2, -1))
    carried = torch.einsum("mbtsij,mbshj->mbtshi", transport, mean)
    brought = torch.einsum("mbtsij,mbshjk,mbtslk->mbtshil", transport, covariance, transport)
    here = covariance[:, :, :, None]
    if form == "diagonal":
        brought = torch.diag_embed(brought.diagonal(0, -2, -1))
    apart = carried - mean[:, :, :, None]
    inverse = torch.linalg.inv(brought)
    trace = torch.einsum("...ij,...ji->...", inverse, here)
    far = torch.einsum("...i,...ij,...j->...", apart, inverse, apart)
    logs = torch.linalg.slogdet(brought)[1] - torch.linalg.slogdet(here)[1]
    kl = 0.5 * (trace + far - mean.shape[-1] + logs)
    return Pairs(carried, brought, kl.permute(0, 1, 4, 2, 3))


def mix(
    pairs: Pairs, look: Float[Tensor, "m b h t s"]
) -> tuple[Float[Tensor, "m b t h e"], Float[Tensor, "m b t h e e"]]:
    """Mean and covariance of the mixture that each head reads."""
    mean = torch.einsum("mbhts,mbtshe->mbthe", look, pairs.mean)
    second = pairs.covariance + pairs.mean[..., :, None] * pairs.mean[..., None, :]
    mixed = torch.einsum("mbhts,mbtshij->mbthij", look, second)
    return mean, mixed - mean[..., :, None] * mean[..., None, :]
