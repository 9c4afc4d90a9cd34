"""How far heads are from looking at every key alike: the seed's row_std, and measures that do not depend on length.

row_std         = mean over queries of std_s β_ts over all N - 1 keys s ≠ t, also those after t, which have 0
                  (published: nanstd, divided by N - 1; the first sequence alone; above .05 MEDIUM, above .10 SHARP)
its floor       = the same of β uniform over the keys before t: .0187 at N = 64, .0217 where no token sees itself
effective keys  = exp(entropy of a row)
sharpness       = mean over queries with a choice of 1 - (effective keys - 1) / (allowed keys - 1)
                  uniform: 0; a single key: 1; at any N
query variation = mean distance |β_t - β_t'| of two of the first 20 rows (published as query_var)

The causal mask alone makes rows differ and vary: the floor of row_std falls with N (N = 24 without the diagonal reads
MEDIUM), and uniform attention to what came before has a query variation of .50 at 12 tokens. Neither tells of content.
The most that row_std can be falls too, √(N - 2)/N: from N = 98 no head whatsoever can read SHARP, from N = 398 none
MEDIUM. And a head that looks at its own token alone has 0, less than a uniform one: the diagonal is left out.
"""

import math
from typing import Literal

import torch

from unbraid.axes import Bool, Float, Tensor
from unbraid.metrics import attention

MEDIUM, SHARP = 0.05, 0.10
"""A row_std above which the seed calls a head so."""
FIRST = 20
"""Of so many tokens the published query variation is taken."""
Class = Literal["UNIFORM", "MEDIUM", "SHARP"]


def row_std(pattern: Float[Tensor, "m b h t s"]) -> Float[Tensor, "m h"]:
    """The published measure: of the first sequence, without the diagonal, with what a causal model may not see."""
    rows = pattern[:, 0].double()
    others = 1 - torch.eye(rows.shape[-1], dtype=rows.dtype)
    amount = others.sum(-1)
    mean = (rows * others).sum(-1) / amount
    variance = ((rows - mean[..., None]).square() * others).sum(-1) / amount
    return variance.sqrt().mean(-1)


def uniform_row_std(tokens: int, self_masked: bool) -> float:
    """The row_std of exactly uniform causal attention at this length; NaN of a single token, which has no other."""
    others = tokens - 1
    if not others:
        return math.nan
    shares = [(before, 1 / (before + (not self_masked))) for before in range(1, tokens)]
    variances = [before * share**2 / others - (before * share / others) ** 2 for before, share in shares]
    return sum(math.sqrt(max(variance, 0.0)) for variance in variances) / tokens


def most_row_std(tokens: int) -> float:
    """The row_std of causal attention to a single key that is another token: the most there is; NaN of one token."""
    return math.sqrt(tokens - 2) / tokens if tokens > 1 else math.nan


def classify(value: float) -> Class:
    """The seed's word for a head of this row_std."""
    return "SHARP" if value > SHARP else "MEDIUM" if value > MEDIUM else "UNIFORM"


def is_self_masked(pattern: Float[Tensor, "m b h t s"]) -> bool:
    """Whether no token that could see another sees itself."""
    return not bool(pattern.diagonal(dim1=-2, dim2=-1)[..., 1:].any())


def without_self(keys: Bool[Tensor, "b t s"]) -> Bool[Tensor, "b t s"]:
    """The keys without the token itself, where it has another."""
    others = keys & ~torch.eye(keys.shape[-1], dtype=torch.bool)
    return torch.where(others.any(-1, keepdim=True), others, keys)


def uniform(keys: Bool[Tensor, "b t s"]) -> Float[Tensor, "1 b 1 t s"]:
    """The attention of a head that looks at every allowed key alike."""
    rows = keys.double()
    return (rows / rows.sum(-1, keepdim=True).clamp_min(1))[None, :, None]


def effective_keys(pattern: Float[Tensor, "m b h t s"], keys: Bool[Tensor, "b t s"]) -> Float[Tensor, "m h"]:
    """In the mean over queries with at least two allowed keys."""
    return attention.over_queries(attention.effective_keys(pattern), _with_a_choice(keys))


def sharpness(pattern: Float[Tensor, "m b h t s"], keys: Bool[Tensor, "b t s"]) -> Float[Tensor, "m h"]:
    """How far each head is from uniform towards a single key; NaN where no query has a choice."""
    spread = attention.spread(pattern, keys)
    room = 1 - 1 / keys.sum(-1).clamp_min(2).to(spread.dtype)
    return attention.over_queries((1 - spread) / room[:, None], _with_a_choice(keys)).clamp(0, 1)


def query_variation(pattern: Float[Tensor, "m b h t s"]) -> Float[Tensor, "m h"]:
    """How far apart the first rows of the first sequence are; NaN of a single token."""
    rows = pattern[:, 0, :, :FIRST].double()
    one, other = torch.triu_indices(rows.shape[-2], rows.shape[-2], offset=1)
    return (rows[:, :, one] - rows[:, :, other]).norm(dim=-1).mean(-1)


def _with_a_choice(keys: Bool[Tensor, "b t s"]) -> Bool[Tensor, "1 b 1 t"]:
    return (keys.sum(-1) > 1)[None, :, None]
