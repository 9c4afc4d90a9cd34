"""Attention by how much it would cost to believe another: β = softmax(-KL(q_i ‖ Ω_ij q_j)/κ), as dot-product attention.

In the common frame, and up to what depends on i alone, which the softmax drops,

    -KL_ij = ⟨S_i + m_i m_iᵀ, -½ P_j⟩ + ⟨m_i, P_j m_j⟩ + 1 · (-½)(m_jᵀ P_j m_j + log|S_j|)

is one inner product of a lifted query and a lifted key, so that torch's `scaled_dot_product_attention` does the rest
and no pattern is ever in memory. What is mixed is again lifted: means, their second moments (so that the covariance
is that of the mixture), and where the mean KL is asked for, keys. The form over pairs is in `pairwise`, and is the
specification.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from unbraid.axes import Bool, Float, Tensor
from unbraid.models.gauge.beliefs import Beliefs, pair_weights, products

BLOCK = 128
"""So many queries are taken together where an array of all pairs is made."""


@dataclass(frozen=True)
class GaugeMask:
    """Which keys a query may attend to: `additive` to scores (-inf: masked), or None for plain causal attention."""

    additive: Float[Tensor, "#b #h t s"] | None
    allowed: Bool[Tensor, "#b 1 #t s"]
    causal: bool = False
    """Whether later keys are always masked, so that early queries have no use for late keys."""

    def for_heads(self, first: int, heads: int) -> "GaugeMask":
        """The mask of so many heads from this one on; where all heads are alike, the same."""
        if self.additive is None or self.additive.shape[1] == 1:
            return self
        return replace(self, additive=self.additive[:, first : first + heads])

    def blocks(self) -> list[tuple[int, int]]:
        """First and last of queries that are taken together, each with the keys up to its last."""
        length = self.allowed.shape[-1]
        most = BLOCK if self.causal else length
        return [(start, min(start + most, length)) for start in range(0, length, most)]


@dataclass(frozen=True)
class HeadRead:
    """What heads read, in the common frame."""

    mean: Float[Tensor, "m b t h e"]
    covariance: Float[Tensor, "m b t h p"] | None
    expected: Float[Tensor, "m b t h"] | None
    """Σ_j β_ij KL_ij."""


def queries(beliefs: Beliefs) -> Float[Tensor, "m b t h l"]:
    """What each token asks: (S + m mᵀ, m, 1)."""
    return torch.cat([beliefs.second, beliefs.mean, torch.ones_like(beliefs.logdet)[..., None]], -1)


def keys(beliefs: Beliefs) -> Float[Tensor, "m b t h l"]:
    """What each token answers: (-½ P, P m, -½ (mᵀPm + log|S|)); entries off the diagonal count twice."""
    twice = pair_weights(beliefs.width, beliefs.mean.dtype).to(beliefs.mean)
    level = (beliefs.mean * beliefs.weighted).sum(-1) + beliefs.logdet
    return torch.cat([-0.5 * twice * beliefs.precision, beliefs.weighted, -0.5 * level[..., None]], -1)


def query_term(beliefs: Beliefs) -> Float[Tensor, "m b t h"]:
    """What of KL_ij depends on i alone."""
    return -0.5 * (beliefs.width + beliefs.logdet)


def divergences(beliefs: Beliefs) -> Float[Tensor, "m b h t s"]:
    """KL of every pair of tokens."""
    inner = torch.einsum("mbthl,mbshl->mbhts", queries(beliefs), keys(beliefs))
    return query_term(beliefs).transpose(2, 3)[..., None] - inner


def stacked_queries_keys(family: Sequence[Beliefs]) -> tuple[Float[Tensor, "m b t l"], Float[Tensor, "m b t l"]]:
    """Queries and keys of all heads of all degrees as one, whose inner product is minus the sum of all their KL."""
    asked, key = (torch.cat([lift(belief).flatten(3) for belief in family], -1) for lift in (queries, keys))
    return asked, key


def attend(
    beliefs: Beliefs,
    kappa: Float[Tensor, "m h"],
    mask: GaugeMask,
    covariance: bool = True,
    expected: bool = False,
) -> HeadRead:
    """What each head reads; covariances and the mean KL only where they are wanted."""
    asked, key = queries(beliefs), keys(beliefs)
    values = [beliefs.mean, *([beliefs.second] if covariance else []), *([key] if expected else [])]
    mixed = _mix(asked / kappa[:, None, None, :, None], key, torch.cat(values, -1), mask)
    mean, *rest = mixed.split([value.shape[-1] for value in values], -1)
    mixture = rest.pop(0) - products(mean) if covariance else None
    return HeadRead(mean, mixture, query_term(beliefs) - (asked * rest[0]).sum(-1) if expected else None)


def patterns(beliefs: Beliefs, kappa: Float[Tensor, "m h"], mask: GaugeMask) -> Float[Tensor, "m b h t s"]:
    """Attention weights of each head, where they are recorded."""
    return pattern(divergences(beliefs), kappa, mask)


def pattern(kl: Float[Tensor, "m b h t s"], kappa: Float[Tensor, "m h"], mask: GaugeMask) -> Float[Tensor, "m b h t s"]:
    """softmax(-KL/κ) over the keys that are not masked."""
    scores = -kl / kappa[:, None, :, None, None]
    if mask.additive is not None:
        return (scores + mask.additive.to(scores)).softmax(-1)
    return scores.masked_fill(~mask.allowed, -torch.inf).softmax(-1)


def _mix(
    query: Float[Tensor, "m b t h l"],
    key: Float[Tensor, "m b t h l"],
    value: Float[Tensor, "m b t h v"],
    mask: GaugeMask,
) -> Float[Tensor, "m b t h v"]:
    """By torch's kernel, with members and sequences as one axis, and queries, keys and values of one width."""
    widest = max(key.shape[-1], value.shape[-1])
    q, k, v = (pad(x, (0, widest - x.shape[-1])).transpose(2, 3).flatten(0, 1) for x in (query, key, value))
    if mask.additive is None:
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
    else:
        additive = mask.additive if len(mask.additive) == 1 else mask.additive.repeat(len(query), 1, 1, 1)
        mixed = scaled_dot_product_attention(q, k, v, attn_mask=additive.to(q.dtype), scale=1.0)
    return mixed.unflatten(0, (len(query), -1)).transpose(2, 3)[..., : value.shape[-1]]
