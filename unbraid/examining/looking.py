"""What the heads of one model look at and write, as tables of layers and heads.

support      m l h    mass on the supporting facts at the token that asks
uniform      m        the same of a head that looks at every key alike
spread       m l h    effective keys over allowed ones
distance     m l h h  how differently two heads of a layer look: Jensen-Shannon
activity     m l h    length of what it writes, as a share of its layer's
usage        m l h    share of tokens routed to it, where they are routed
experts      m l n    share of tokens routed to each expert of a routed feed-forward
cosine, cka  m l h h  how alike two heads of a layer write of stories
explained    m l h f  how much of what it reads each factor explains

What heads write shares one space; what they read is in coordinates of their own, in which cosines mean nothing. Where
tokens are routed, a head looks and reads only at those that take it: what it does at others never reaches the model. A
head that none takes has no spread, and two that none takes together no distance: NaN.
"""

from collections.abc import Sequence

import torch

from unbraid.axes import Float, Tensor
from unbraid.metrics import attention, heads
from unbraid.metrics.separation import explained
from unbraid.models import Models
from unbraid.worlds.stories import StoryBatch

Named = dict[str, Tensor]
TINY = 1e-12
PATTERN, READ, WRITTEN, GATE = (f"attn.hook_{name}" for name in ("pattern", "z", "result", "gate"))
EXPERTS = "mlp.hook_gate"
SHARES = {"usage": GATE, "experts": EXPERTS}


def look(one: Models, batches: Sequence[StoryBatch]) -> Named:
    """Tables of a single member, over all these stories; a batch is looked at and forgotten."""
    parts = [_see(one, batch) for batch in batches]
    tables = [_layer([part[layer] for part in parts], batches) for layer in range(one.settings.layers)]
    uniform = [_uniform(batch, one.settings.causal) for batch in batches]
    stacked = {name: torch.stack([table[name] for table in tables], 1) for name in tables[0]}
    return {**stacked, "uniform": _mean(uniform, _questions(batches))[None]}


def _see(one: Models, batch: StoryBatch) -> list[Named]:
    """What a batch tells of each layer."""
    places = [f"blocks.{layer}." for layer in range(one.settings.layers)]
    known = one.settings.hooks()
    hooks = [hook for hook in (PATTERN, READ, WRITTEN, GATE, EXPERTS) if places[0] + hook in known]
    recorded = one.forward(batch.tokens, [place + hook for place in places for hook in hooks]).recorded
    return [_part({hook: recorded[place + hook] for hook in hooks}, batch, one.settings.causal) for place in places]


def _part(recorded: Named, batch: StoryBatch, causal: bool) -> Named:
    """Of one layer: means over the batch's queries or tokens, and what is compared over all stories."""
    keys = attention.allowed(batch.mask, causal)
    pattern, written = recorded[PATTERN], recorded[WRITTEN]
    gate = recorded[GATE].transpose(2, 3) if GATE in recorded else pattern.new_ones(pattern.shape[:-1])
    queries = (batch.mask & (keys.sum(-1) > 1))[:, None] & (gate > 0)
    looked = pattern / pattern.sum(-1, keepdim=True).clamp_min(TINY)  # what is left of it may be on memories
    part = {
        "queries": queries.sum((1, 3)),
        "pairs": torch.einsum("mbht,mbgt->mhg", *2 * [queries.double()]),
        "spread": attention.over_queries(attention.spread(looked, keys), queries),
        "distance": attention.head_distances(looked, queries),
        "support": attention.support_mass(
            attention.rows_of(pattern * (gate > 0)[..., None], batch.asked), batch.support
        ),
        "activity": attention.over_queries(written.norm(dim=-1), batch.mask[None, :, None]),
        "pooled": heads.pooled(written, batch.mask),
        "tokens": (recorded[READ] * gate[..., None]).transpose(2, 3)[:, batch.mask],
    }
    shares = {name: heads.usage(recorded[hook], batch.mask) for name, hook in SHARES.items() if hook in recorded}
    return {**part, **shares}


def _layer(parts: Sequence[Named], batches: Sequence[StoryBatch]) -> Named:
    """All batches together."""
    tokens = [batch.mask.sum() for batch in batches]
    weights = {name: tokens for name in ("activity", *SHARES) if name in parts[0]}
    weights |= {"support": _questions(batches)}
    weights |= {name: [part[of] for part in parts] for name, of in (("spread", "queries"), ("distance", "pairs"))}
    found = {name: _mean([part[name] for part in parts], each) for name, each in weights.items()}
    found["activity"] = found["activity"] / found["activity"].sum(-1, keepdim=True)
    pooled, read = (torch.cat([part[name] for part in parts], 1) for name in ("pooled", "tokens"))
    found |= {"cosine": heads.cosine_redundancy(pooled), "cka": heads.cka(pooled)}
    values = [torch.cat([batch.factors[name][batch.mask] for batch in batches]) for name in batches[0].factors]
    return {**found, "explained": torch.stack([explained(read, each.long()) for each in values], -1)}


def _uniform(batch: StoryBatch, causal: bool) -> Float[Tensor, ""]:
    return attention.uniform_mass(attention.allowed(batch.mask, causal), batch.asked, batch.support)


def _questions(batches: Sequence[StoryBatch]) -> list[Tensor]:
    return [torch.tensor(batch.asked.numel()) for batch in batches]


def _mean(parts: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """Over batches, each with its weight, which may differ between heads."""
    values, shares = (torch.stack(list(given)).double() for given in (parts, weights))
    shares = shares.view(*shares.shape, *[1] * (values.dim() - shares.dim()))
    weighed = torch.where(shares > 0, shares * values, 0)  # what has no weight may be NaN
    return (weighed.sum(0) / shares.sum(0)).float()
