"""Where heads look: how widely, how differently from one another, and how much at what an answer follows from.

entropy        = -Σ_s p_s log p_s                                 of a row of attention p, in nats
effective keys = exp(entropy)                                     1 for a single key, n for n alike
spread         = effective keys / keys that may be looked at      uniform: 1; a single key of n: 1/n
specialisation = mean over pairs of heads and over queries of √JSD(p, p'), JSD the Jensen-Shannon divergence in bits
                                                                  heads that look alike: 0; at different keys: 1
support mass   = Σ_{s in the supporting facts} p_s, p the row of the token that asks
                                                                  uniform: the share of allowed keys that support
"""

from itertools import combinations

import torch

from unbraid.axes import Bool, Float, Int, Tensor


def allowed(mask: Bool[Tensor, "b t"], causal: bool) -> Bool[Tensor, "b t s"]:
    """The keys each query may look at: those that are not padding, and of a causal model those not after it."""
    keys = mask[:, None, :].expand(-1, mask.shape[1], -1)
    return keys.tril() if causal else keys


def entropy(pattern: Float[Tensor, "*row s"]) -> Float[Tensor, "*row"]:
    return torch.special.entr(pattern).sum(-1)


def effective_keys(pattern: Float[Tensor, "*row s"]) -> Float[Tensor, "*row"]:
    return entropy(pattern).exp()


def spread(pattern: Float[Tensor, "m b h t s"], keys: Bool[Tensor, "b t s"]) -> Float[Tensor, "m b h t"]:
    """Effective keys of those allowed; a query that may look at nothing counts as one that may look at one key."""
    return effective_keys(pattern) / keys.sum(-1).clamp_min(1)[:, None]


def over_queries(values: Float[Tensor, "m b h t"], queries: Bool[Tensor, "#m b #h t"]) -> Float[Tensor, "m h"]:
    """The mean of each head over these queries; NaN of a head that has none."""
    chosen = queries.to(values.dtype)
    return (values * chosen).sum((1, 3)) / chosen.sum((1, 3))


def head_distances(pattern: Float[Tensor, "m b h t s"], queries: Bool[Tensor, "#m b #h t"]) -> Float[Tensor, "m h h"]:
    """The mean Jensen-Shannon distance of every two heads over queries of both, a pair at a time; NaN without any."""
    members, _, heads = pattern.shape[:3]
    queries = queries.expand(members, -1, heads, -1)
    found = pattern.new_zeros(members, heads, heads)
    for one, other in combinations(range(heads), 2):
        first, second, both = pattern[:, :, one], pattern[:, :, other], queries[:, :, one] & queries[:, :, other]
        middle = entropy((first + second) / 2)
        divergence = (middle - (entropy(first) + entropy(second)) / 2) / torch.tensor(2.0).log()
        distances = divergence.clamp(0, 1).sqrt() * both
        found[:, one, other] = distances.sum((1, 2)) / both.sum((1, 2))
    return found + found.mT


def between_heads(table: Float[Tensor, "m h h"]) -> Float[Tensor, "m"]:
    """The mean over pairs of different heads that have a value; NaN of a single head."""
    one, other = torch.triu_indices(*table.shape[-2:], offset=1)
    return table[:, one, other].nanmean(-1)


def rows_of(pattern: Float[Tensor, "m b h t s"], asked: Int[Tensor, "b q"]) -> Float[Tensor, "m b h q s"]:
    """The rows of attention of the tokens that ask."""
    stories = torch.arange(len(asked))[:, None]
    return pattern.permute(1, 3, 0, 2, 4)[stories, asked].permute(2, 0, 3, 1, 4)


def support_mass(rows: Float[Tensor, "m b h q s"], support: Bool[Tensor, "b q s"]) -> Float[Tensor, "m h"]:
    """How much of its attention each head gives to the supporting facts, on average over questions."""
    return torch.einsum("mbhqs,bqs->mh", rows, support.to(rows.dtype)) / support[..., 0].numel()


def uniform_mass(
    keys: Bool[Tensor, "b t s"], asked: Int[Tensor, "b q"], support: Bool[Tensor, "b q s"]
) -> Float[Tensor, ""]:
    """The same of a head that looks at every allowed key alike."""
    seen = keys[torch.arange(len(asked))[:, None], asked]
    return ((support & seen).sum(-1) / seen.sum(-1)).mean()
