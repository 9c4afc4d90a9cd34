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
from unbraid.models.gauge.beliefs import Beliefs
from unbraid.models.gauge.lifts import products, weights

BLOCK = 128
"""So many queries are taken together where an array of all pairs is made."""


@dataclass(frozen=True)
class Looking:
    """Who may see whom: `added` to scores (-inf: not at all), or None for everything up to oneself."""

    added: Float[Tensor, "#b #h t s"] | None
    allowed: Bool[Tensor, "#b 1 #t s"]
    back: bool = False
    """Whether nobody sees what comes later, so that early queries have no use for late keys."""

    def of_heads(self, first: int, heads: int) -> "Looking":
        """For so many heads from this one on; where all heads are alike, the same."""
        if self.added is None or self.added.shape[1] == 1:
            return self
        return replace(self, added=self.added[:, first : first + heads])

    def blocks(self) -> list[tuple[int, int]]:
        """First and last of queries that are taken together, each with the keys up to its last."""
        length = self.allowed.shape[-1]
        most = BLOCK if self.back else length
        return [(start, min(start + most, length)) for start in range(0, length, most)]


@dataclass(frozen=True)
class Read:
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
    twice = weights(beliefs.width, beliefs.mean.dtype)
    level = (beliefs.mean * beliefs.weighted).sum(-1) + beliefs.logdet
    return torch.cat([-0.5 * twice * beliefs.precision, beliefs.weighted, -0.5 * level[..., None]], -1)


def own(beliefs: Beliefs) -> Float[Tensor, "m b t h"]:
    """What of KL_ij depends on i alone."""
    return -0.5 * (beliefs.width + beliefs.logdet)


def divergences(beliefs: Beliefs) -> Float[Tensor, "m b h t s"]:
    """KL of every pair of tokens."""
    inner = torch.einsum("mbthl,mbshl->mbhts", queries(beliefs), keys(beliefs))
    return own(beliefs).transpose(2, 3)[..., None] - inner


def together(family: Sequence[Beliefs]) -> tuple[Float[Tensor, "m b t l"], Float[Tensor, "m b t l"]]:
    """Queries and keys of all heads of all degrees as one, whose inner product is minus the sum of all their KL."""
    asked, key = (torch.cat([part(one).flatten(3) for one in family], -1) for part in (queries, keys))
    return asked, key


def attend(
    beliefs: Beliefs,
    kappa: Float[Tensor, "m h"],
    looking: Looking,
    covariance: bool = True,
    expected: bool = False,
) -> Read:
    """What each head reads; covariances and the mean KL only where they are wanted."""
    asked, key = queries(beliefs), keys(beliefs)
    values = [beliefs.mean, *([beliefs.second] if covariance else []), *([key] if expected else [])]
    mixed = _mix(asked / kappa[:, None, None, :, None], key, torch.cat(values, -1), looking)
    mean, *rest = mixed.split([value.shape[-1] for value in values], -1)
    mixture = rest.pop(0) - products(mean) if covariance else None
    return Read(mean, mixture, own(beliefs) - (asked * rest[0]).sum(-1) if expected else None)


def patterns(beliefs: Beliefs, kappa: Float[Tensor, "m h"], looking: Looking) -> Float[Tensor, "m b h t s"]:
    """How each head looks, where somebody wants to see it."""
    return pattern(divergences(beliefs), kappa, looking)


def pattern(
    kl: Float[Tensor, "m b h t s"], kappa: Float[Tensor, "m h"], looking: Looking
) -> Float[Tensor, "m b h t s"]:
    """softmax(-KL/κ) over what may be seen."""
    scores = -kl / kappa[:, None, :, None, None]
    if looking.added is not None:
        return (scores + looking.added.to(scores.dtype)).softmax(-1)
    return scores.masked_fill(~looking.allowed, -torch.inf).softmax(-1)


def _mix(
    query: Float[Tensor, "m b t h l"],
    key: Float[Tensor, "m b t h l"],
    value: Float[Tensor, "m b t h v"],
    looking: Looking,
) -> Float[Tensor, "m b t h v"]:
    """By torch, to whom members and sequences are one axis, and queries, keys and values are of one width."""
    widest = max(key.shape[-1], value.shape[-1])
    q, k, v = (pad(part, (0, widest - part.shape[-1])).transpose(2, 3).flatten(0, 1) for part in (query, key, value))
    if looking.added is None:
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
    else:
        added = looking.added if len(looking.added) == 1 else looking.added.repeat(len(query), 1, 1, 1)
        mixed = scaled_dot_product_attention(q, k, v, attn_mask=added.to(q.dtype), scale=1.0)
    return mixed.unflatten(0, (len(query), -1)).transpose(2, 3)[..., : value.shape[-1]]
