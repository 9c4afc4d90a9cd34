"""Where heads attend, how widely and how differently, and what each is needed for.

entropy           = -Σ_s p_s log p_s                              of a row of attention p, in nats
effective keys    = exp(entropy)                                  1 for a single key, n for n alike
attention entropy = effective keys / keys that may be attended    uniform: 1; a single key of n: 1/n
specialisation    = mean over pairs of heads and over queries of √JSD(p, p'), JSD the Jensen-Shannon divergence in bits
                                                                  heads that attend alike: 0; to different keys: 1
support mass      = Σ_{s in the supporting facts} p_s, p the row of the token that asks
                                                                  uniform: the share of allowed keys that support

**Uniformity**: the published row_std, and measures that do not depend on length.

row_std         = mean over queries of std_s β_ts over all N - 1 keys s ≠ t, also those after t, which have 0
                  (published: nanstd, divided by N - 1; the first sequence alone; above .05 MEDIUM, above .10 SHARP)
its floor       = the same of β uniform over the keys before t: .0187 at N = 64, .0217 where no token sees itself
effective keys  = exp(entropy of a row)
sharpness       = mean over queries with a choice of 1 - (effective keys - 1) / (allowed keys - 1)
                  uniform: 0; a single key: 1; at any N
query variation = mean distance |β_t - β_t'| of two of the first 20 rows (published as query_var)

The causal mask alone makes rows differ and vary: the floor of row_std falls with N (N = 24 without the diagonal reads
MEDIUM), and uniform attention to what came before has a query variation of .50 at 12 tokens. Neither tells of content.
The most that row_std can be falls too, √(N - 2)/N: from N = 98 no head at all can read SHARP, from N = 398 none
MEDIUM. And it does not see a head that looks at its own token alone: without the diagonal that has 0.

**Head ablation**: the answers that go wrong when a head is ablated.

importance   = accuracy - accuracy without the head               a head that nothing reads: 0
needed       = share of answers that are right and, without the head, wrong
largest drop = largest importance of the head in any group of questions, over several ways of grouping them
               its chance: the same with questions dealt to the groups at random, which is above 0 by luck alone
"""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch

from unbraid.axes import Bool, Float, Int, Tensor


def allowed(mask: Bool[Tensor, "b t"], causal: bool) -> Bool[Tensor, "b t s"]:
    """The keys each query may look at: those that are not padding, and of a causal model those not after it."""
    keys = mask[:, None, :].expand(-1, mask.shape[1], -1)
    return keys.tril() if causal else keys


def entropy(pattern: Float[Tensor, "*row s"]) -> Float[Tensor, "*row"]:
    """Of each row of attention, in nats."""
    return torch.special.entr(pattern).sum(-1)


def effective_keys(pattern: Float[Tensor, "*row s"]) -> Float[Tensor, "*row"]:
    """exp of the entropy: as many keys, attended alike, have the same."""
    return entropy(pattern).exp()


def attention_entropy(pattern: Float[Tensor, "m b h t s"], keys: Bool[Tensor, "b t s"]) -> Float[Tensor, "m b h t"]:
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
    one, other = torch.triu_indices(*table.shape[-2:], offset=1).to(table.device)
    return table[:, one, other].nanmean(-1)


def rows_of(pattern: Float[Tensor, "m b h t s"], asked: Int[Tensor, "b q"]) -> Float[Tensor, "m b h q s"]:
    """The rows of attention of the tokens that ask."""
    stories = torch.arange(len(asked), device=asked.device)[:, None]
    return pattern.permute(1, 3, 0, 2, 4)[stories, asked].permute(2, 0, 3, 1, 4)


def support_mass(rows: Float[Tensor, "m b h q s"], support: Bool[Tensor, "b q s"]) -> Float[Tensor, "m h"]:
    """How much of its attention each head gives to the supporting facts, on average over questions."""
    return torch.einsum("mbhqs,bqs->mh", rows, support.to(rows.dtype)) / support[..., 0].numel()


def uniform_mass(
    keys: Bool[Tensor, "b t s"], asked: Int[Tensor, "b q"], support: Bool[Tensor, "b q s"]
) -> Float[Tensor, ""]:
    """The same of a head that looks at every allowed key alike."""
    seen = keys[torch.arange(len(asked), device=asked.device)[:, None], asked]
    return ((support & seen).sum(-1) / seen.sum(-1)).mean()


FIRST = 20
"""Of so many tokens the published query variation is taken."""


def row_std(pattern: Float[Tensor, "m b h t s"]) -> Float[Tensor, "m h"]:
    """The published measure: of the first sequence, without the diagonal, with what a causal model may not see."""
    rows = pattern[:, 0].double()
    others = 1 - torch.eye(rows.shape[-1]).to(rows)
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


def is_self_masked(pattern: Float[Tensor, "m b h t s"]) -> bool:
    """Whether no token that could see another sees itself."""
    return not bool(pattern.diagonal(dim1=-2, dim2=-1)[..., 1:].any())


def without_self(keys: Bool[Tensor, "b t s"]) -> Bool[Tensor, "b t s"]:
    """The keys without the token itself, where it has another."""
    others = keys & ~torch.eye(keys.shape[-1], dtype=torch.bool, device=keys.device)
    return torch.where(others.any(-1, keepdim=True), others, keys)


def uniform_attention(keys: Bool[Tensor, "b t s"]) -> Float[Tensor, "1 b 1 t s"]:
    """The attention of a head that looks at every allowed key alike."""
    rows = keys.double()
    return (rows / rows.sum(-1, keepdim=True).clamp_min(1))[None, :, None]


def mean_effective_keys(pattern: Float[Tensor, "m b h t s"], keys: Bool[Tensor, "b t s"]) -> Float[Tensor, "m h"]:
    """In the mean over queries with at least two allowed keys."""
    return over_queries(effective_keys(pattern), _with_a_choice(keys))


def sharpness(pattern: Float[Tensor, "m b h t s"], keys: Bool[Tensor, "b t s"]) -> Float[Tensor, "m h"]:
    """How far each head is from uniform towards a single key; NaN where no query has a choice."""
    entropy_share = attention_entropy(pattern, keys)
    room = 1 - 1 / keys.sum(-1).clamp_min(2).to(entropy_share.dtype)
    return over_queries((1 - entropy_share) / room[:, None], _with_a_choice(keys)).clamp(0, 1)


def query_variation(pattern: Float[Tensor, "m b h t s"]) -> Float[Tensor, "m h"]:
    """How far apart the first rows of the first sequence are; NaN of a single token."""
    rows = pattern[:, 0, :, :FIRST].double()
    one, other = torch.triu_indices(rows.shape[-2], rows.shape[-2], offset=1).to(rows.device)
    return (rows[:, :, one] - rows[:, :, other]).norm(dim=-1).mean(-1)


def _with_a_choice(keys: Bool[Tensor, "b t s"]) -> Bool[Tensor, "1 b 1 t"]:
    return (keys.sum(-1) > 1)[None, :, None]


def norm_share(part: Float[Tensor, "m b t d"], whole: Float[Tensor, "m b t d"]) -> Float[Tensor, "m"]:
    """How long one part of each story's gradient is beside the whole, both summed over stories; 1 is no bound."""
    return summed_norm(part) / summed_norm(whole)


def summed_norm(gradient: Float[Tensor, "m b t d"]) -> Float[Tensor, "m"]:
    """The lengths of all stories' gradients, each over its tokens."""
    return gradient.flatten(2).norm(dim=-1).sum(1)


FEWEST_QUESTIONS = 20
"""A group of fewer questions tells nothing."""
DEALS = 20


def importance(right: Bool[Tensor, "m b"], without: Bool[Tensor, "m k b"]) -> Float[Tensor, "m k"]:
    """From which of b questions are answered right, and which without each of k heads."""
    return right.double().mean(-1, keepdim=True) - without.double().mean(-1)


def needed(right: Bool[Tensor, "m b"], without: Bool[Tensor, "m k b"]) -> Float[Tensor, "m k"]:
    """The share of b questions answered right, and wrong without each of k heads."""
    return (right[:, None] & ~without).double().mean(-1)


def importance_by_group(
    right: Bool[Tensor, "m b"], without: Bool[Tensor, "m k b"], groups: Int[Tensor, "b"]
) -> Float[Tensor, "m k g"]:
    """The importance in each group, numbered from 0 (below it is none); NaN where there are too few questions."""
    member = torch.nn.functional.one_hot(groups.clamp_min(0)).double() * (groups >= 0)[:, None]
    size = member.sum(0)
    drop = (right[:, None].double() - without.double()) @ member / size
    return torch.where(size >= FEWEST_QUESTIONS, drop, torch.nan)


def largest_drop(
    right: Bool[Tensor, "m b"], without: Bool[Tensor, "m k b"], groupings: Sequence[Int[Tensor, "b"]]
) -> Float[Tensor, "m k"]:
    """NaN where no group is large enough."""
    drops = torch.cat([importance_by_group(right, without, groups) for groups in groupings], -1)
    found = drops.nan_to_num(nan=-torch.inf).amax(-1)
    return torch.where(found.isfinite(), found, torch.nan)


def chance_of_largest_drop(
    right: Bool[Tensor, "m b"],
    without: Bool[Tensor, "m k b"],
    groupings: Sequence[Int[Tensor, "b"]],
    rng: np.random.Generator,
) -> Float[Tensor, "m k"]:
    """Its mean over deals: each deals all questions anew, the same for every way of grouping."""
    deals = (torch.from_numpy(rng.permutation(right.shape[-1])) for _ in range(DEALS))
    return torch.stack([largest_drop(right, without, [each[deal] for each in groupings]) for deal in deals]).mean(0)
