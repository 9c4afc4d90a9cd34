"""Evaluate the heads of models on stories, with chance beside every score.

Scores of a model
    accuracy, parameters, and one number a member of the tables below: of the best head of all, or of the last layer.
    attractors        fixed points of Hopfield queries, as a share of the story's tokens (last layer)
    recalled          stored tokens that a fixed point is made of: 1, a single token is recalled
    store_separation  how much more a stored token is like itself than any other, over its mean squared length

Tables of layers and heads
    support      m l h    attention on the supporting facts at the token that asks
    uniform      m        the same of uniform attention
    spread       m l h    effective keys over allowed ones
    distance     m l h h  Jensen-Shannon distance between the patterns of two heads of a layer
    activity     m l h    norm of what it writes, as a share of its layer's
    usage        m l h    share of tokens routed to it, where they are routed
    experts      m l n    share of tokens routed to each expert of a routed feed-forward
    cosine, cka  m l h h  similarity of what two heads of a layer write of stories
    cka_layers   m k k    CKA of any two of the k = l · h heads of all layers
    dependence, dependence_nonlinear
                 m l h h  held-out R² of what the second head writes of stories, predicted from the first
    rank         m l h    effective rank of what it writes of stories
    explained    m l h f  how much of what it reads each factor explains
    importance   m l h    accuracy less accuracy with the head ablated
    needed       m l h    share of answers that are right only with it
    largest_drop m l h    importance in the group of questions that needs it most
    dealt_drop   m l h    the same with questions dealt to groups at random
    gradient_share, gradient_norm, gradient_sharpness
                 m f      see `attention_gradient.py`

Chance is what a score would be without understanding: the best of a few shortcuts that do not read the question
(accuracy), uniform attention (spread, mean support), the same model before training (support of the best head, CKA,
specialisation, separation, rank, gradient), random directions (cosine), stories of each head in an order of their own
(dependence), questions dealt to groups at random (the quietest head). Each member is evaluated alone; the formulas are
in `metrics/`.

What heads write shares one space; what they read is in coordinates of their own, in which cosines mean nothing. Where
tokens are routed, a head attends and reads only at those that take it: what it does at others never reaches the model.
A head that none takes has no spread, and two that none takes together no distance: NaN. Questions are grouped by their
answer, by their place in the story, and by how far back their last supporting fact is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.config import JsonDict
from unbraid.evaluation.attention_gradient import gradient_scores
from unbraid.metrics import attention, heads
from unbraid.metrics.heads import explained, separation
from unbraid.models import HeadEvaluation, Hopfield, Models, Transformers, hopfield_energy, start_models
from unbraid.randomness import stream
from unbraid.worlds.stories import Stories, StoryBatch

SPLIT = "evaluation"
BATCH = 64
IDLE = 0.01
"""A head is idle if ablating it spoils less than this share of answers."""
QUARTERS = (0.25, 0.5, 0.75)
HOPFIELD_STORIES = 16
"""Every Hopfield query is followed for hundreds of iterations."""
DRAWN = 4
"""Heads drawn at random to be shown."""
TINY = 1e-12
PATTERN, READ, WRITTEN, GATE = (f"attn.hook_{name}" for name in ("pattern", "z", "result", "gate"))
EXPERTS = "mlp.hook_gate"
SHARES = {"usage": GATE, "experts": EXPERTS}
AS_UNTRAINED = ("support_best", "specialisation", "head_cka", "layer_cka", "separation", "head_rank")
"""Scores whose chance is the same of the model before training."""
DEPENDENCE = {"head_dependence": "dependence", "head_dependence_nonlinear": "dependence_nonlinear"}
"""Scores and the tables whose largest entry they are."""

Named = dict[str, Tensor]


@dataclass(frozen=True)
class HeadScores:
    """What `evaluate_heads` returns: scores of m models and of their heads, with chance.

    Parameters
    ----------
    values : dict of str to Tensor, each of shape (m,)
        Each score by name, as `accuracy`. docs/metrics.md defines them.
    chance : dict of str to Tensor, each of shape (m,)
        The chance of scores that have one.
    tables : dict of str to Tensor
        Scores of each head, shape (m, layer, head) or longer.
    shortcuts : dict of str to float
        Accuracy of simple rules that do not solve the task; see `Stories.shortcuts`.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> scores = ub.HeadScores({"accuracy": torch.tensor([0.9, 0.8])}, {}, {}, shortcuts={"chance": 0.25})
    >>> len(scores.values["accuracy"])
    2
    """

    values: Named
    """Scores by name, each `m`."""
    chance: Named
    """The chance of scores that have one, each `m`."""
    tables: Named
    """Tables of layers and heads, `m l h …`."""
    shortcuts: dict[str, float]
    """Accuracy of rules that do not read the question."""


@torch.no_grad()
def evaluate_heads(models: Models, world: Stories, settings: HeadEvaluation) -> HeadScores:
    """Score models and their attention heads on stories that no training has seen.

    Parameters
    ----------
    models : Models
        m trained transformers.
    world : Stories
        The task they were trained on.
    settings : HeadEvaluation
        How many stories.

    Returns
    -------
    HeadScores
        `values` and `chance`, each (m,); `tables` of layers and heads (m, l, h, ...); and the accuracy of `shortcuts`.

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Stories(people=2, places=3, rounds=1)
    >>> config = ub.Transformer(d_model=8, heads=2, d_ff=8, layers=1)
    >>> models = ub.start_models(config, len(world.vocabulary), world.length, len(world.answers), seeds=[0])
    >>> scores = ub.evaluate_heads(models, world, ub.HeadEvaluation(stories=8, heads=8))
    >>> scores.values["accuracy"].shape, scores.tables["importance"].shape
    (torch.Size([1]), torch.Size([1, 1, 2]))
    """
    batches = held_out_batches(world, settings.stories)
    head_batches = held_out_batches(world, min(settings.heads, settings.stories))
    shortcuts = world.shortcuts()
    untrained = start_models(models.settings, len(world.vocabulary), world.length, len(world.answers), models.seeds)
    scores: list[tuple[Named, Named, Named]] = []
    for index in range(models.members):
        member = models.member(index)
        answered = {"accuracy": _accuracy(member, batches), "parameters": _parameters(member)}
        values, chance, tables = _heads(member, untrained.member(index), head_batches)
        answered |= hopfield_scores(member, head_batches[0])
        scores.append(({**answered, **values}, {"accuracy": torch.tensor([shortcuts["chance"]]), **chance}, tables))
    values, chance, tables = (_joined(of_members) for of_members in zip(*scores, strict=True))
    return HeadScores(values, chance, tables, shortcuts)


def held_out_batches(world: Stories, stories: int) -> list[StoryBatch]:
    """So many stories, always the same, that no training has seen."""
    starts = range(0, stories, BATCH)
    return [world.batch(start // BATCH, BATCH, split=SPLIT).first(stories - start) for start in starts]


def _accuracy(member: Models, batches: Sequence[StoryBatch]) -> Tensor:
    logits = [member.read(member.forward(batch.tokens), batch.asked) for batch in batches]
    right = [heads.right(said, batch.answers) for said, batch in zip(logits, batches, strict=True)]
    return heads.accuracy(torch.cat(right, 1))


def _parameters(member: Models) -> Tensor:
    return torch.tensor([float(sum(p.numel() for p in member.parameters().values()))])


def _heads(member: Models, untrained: Models, batches: Sequence[StoryBatch]) -> tuple[Named, Named, Named]:
    """Everything about the heads of one member: scores, their chance, tables."""
    tables, before = attention_tables(member, batches), attention_tables(untrained, batches)
    ablated = ablation_tables(member, batches)
    values, start = _summary(tables), _summary(before)
    values["importance_most"] = ablated["importance"].flatten(1).amax(1)
    values["idle"] = (ablated["needed"] < IDLE).double().mean((1, 2))
    values["least_used_head_drop"] = _of_quietest(tables, ablated["largest_drop"])
    values["untrained_separation"] = start["separation"]
    gradients, by_factor = gradient_scores(member, batches[0])
    gradients_before, by_factor_before = gradient_scores(untrained, batches[0])
    chance = {name: start[name] for name in AS_UNTRAINED} | gradients_before
    chance |= {"attention_gradient_left": torch.ones(1)} if gradients else {}
    chance |= {"support_mass": tables["uniform"], "attention_entropy": torch.ones(1)}
    chance |= {name: tables[f"{table}_dealt"] for name, table in DEPENDENCE.items()}
    chance["head_cosine"] = torch.tensor([heads.expected_cosine(member.settings.width)])
    chance["least_used_head_drop"] = _of_quietest(tables, ablated["dealt_drop"])
    before_too = {f"{name}_untrained": before[name] for name in ("support", "attention_entropy", "dependence", "rank")}
    before_too |= {f"{name}_untrained": table for name, table in by_factor_before.items()}
    return {**values, **gradients}, chance, {**tables, **before_too, **ablated, **by_factor}


def _summary(tables: Named) -> Named:
    """One number a member: of the best head of all, or of the last layer, where constraints act by default."""
    last = {name: table[:, -1] for name, table in tables.items() if table.dim() > 1}
    values = {
        "support_best": tables["support"].flatten(1).amax(1),
        "support_mass": last["support"].mean(1),
        "attention_entropy": last["attention_entropy"].nanmean(1),
        "specialisation": attention.between_heads(last["distance"]),
        "head_cosine": attention.between_heads(last["cosine"]),
        "head_cka": attention.between_heads(last["cka"]),
        "layer_cka": heads.between_layers(tables["cka_layers"], layers=tables["cka"].shape[1]),
        "head_rank": last["rank"].mean(1),
        **{name: heads.largest_between(last[table]) for name, table in DEPENDENCE.items()},
        "separation": separation(tables["explained"].flatten(1, 2)),
        "usage_evenness": heads.evenness(last["activity"]),
    }
    routed = {"routing_evenness": "usage", "expert_evenness": "experts"}
    return values | {name: heads.evenness(last[table]) for name, table in routed.items() if table in last}


def _of_quietest(tables: Named, table: Tensor) -> Tensor:
    """What a table `m l h` says of the least active head of the last layer."""
    quietest = tables["activity"][:, -1].argmin(-1, keepdim=True)
    return table[:, -1].gather(1, quietest)[:, 0]


def _joined(parts: Sequence[Named]) -> Named:
    """Members after one another."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def attention_tables(member: Models, batches: Sequence[StoryBatch]) -> Named:
    """What the heads of a single member attend to, read and write; a batch is measured and forgotten."""
    parts = [_batch_tables(member, batch) for batch in batches]
    layers = [[part[layer] for part in parts] for layer in range(member.settings.layers)]
    tables = [_layer_tables(of_layer, batches) for of_layer in layers]
    uniform = [_uniform(batch, member.settings.causal) for batch in batches]
    stacked = {name: torch.stack([table[name] for table in tables], 1) for name in tables[0]}
    pooled = [_over_batches(of_layer, "pooled") for of_layer in layers]
    dealt = dependence(deal_stories(pooled[-1]))
    stacked |= {f"{name}_dealt": heads.largest_between(table) for name, table in dealt.items()}
    stacked["cka_layers"] = heads.cka(torch.cat(pooled, 2))
    return {**stacked, "uniform": _mean(uniform, _questions(batches))[None]}


def deal_stories(pooled: Float[Tensor, "m n h d"]) -> Float[Tensor, "m n h d"]:
    """Heads that know nothing of each other: each has an order of stories of its own."""
    rng = stream(0, "dealt stories")
    orders = [torch.from_numpy(rng.permutation(pooled.shape[1])) for _ in range(pooled.shape[2])]
    return torch.stack([pooled[:, order, head] for head, order in enumerate(orders)], 2)


def dependence(pooled: Float[Tensor, "m n h d"]) -> Named:
    """The held-out R² of every two heads, linear and not."""
    return {
        "dependence": heads.held_out_r2(pooled, "linear"),
        "dependence_nonlinear": heads.held_out_r2(pooled, "rbf"),
    }


def _over_batches(parts: Sequence[Named], name: str) -> Tensor:
    return torch.cat([part[name] for part in parts], 1)


def _batch_tables(member: Models, batch: StoryBatch) -> list[Named]:
    """What a batch says of each layer."""
    blocks = [f"blocks.{layer}." for layer in range(member.settings.layers)]
    known = member.settings.hooks()
    hooks = [hook for hook in (PATTERN, READ, WRITTEN, GATE, EXPERTS) if blocks[0] + hook in known]
    recorded = member.forward(batch.tokens, [block + hook for block in blocks for hook in hooks]).recorded
    causal = member.settings.causal
    return [_measure({hook: recorded[block + hook] for hook in hooks}, batch, causal) for block in blocks]


def _measure(recorded: Named, batch: StoryBatch, causal: bool) -> Named:
    """Of one layer: means over the batch's queries or tokens, and what is compared over all stories."""
    keys = attention.allowed(batch.mask, causal)
    pattern, written = recorded[PATTERN], recorded[WRITTEN]
    gate = recorded[GATE].transpose(2, 3) if GATE in recorded else pattern.new_ones(pattern.shape[:-1])
    queries = (batch.mask & (keys.sum(-1) > 1))[:, None] & (gate > 0)
    on_tokens = pattern / pattern.sum(-1, keepdim=True).clamp_min(TINY)  # the rest of it may be on memories
    measured = {
        "queries": queries.sum((1, 3)),
        "pairs": torch.einsum("mbht,mbgt->mhg", *2 * [queries.double()]),
        "attention_entropy": attention.over_queries(attention.attention_entropy(on_tokens, keys), queries),
        "distance": attention.head_distances(on_tokens, queries),
        "support": attention.support_mass(
            attention.rows_of(pattern * (gate > 0)[..., None], batch.asked), batch.support
        ),
        "activity": attention.over_queries(written.norm(dim=-1), batch.mask[None, :, None]),
        "pooled": heads.pooled(written, batch.mask),
        "tokens": (recorded[READ] * gate[..., None]).transpose(2, 3)[:, batch.mask],
    }
    shares = {name: heads.usage(recorded[hook], batch.mask) for name, hook in SHARES.items() if hook in recorded}
    return {**measured, **shares}


def _layer_tables(parts: Sequence[Named], batches: Sequence[StoryBatch]) -> Named:
    """All batches together."""
    tokens = [batch.mask.sum() for batch in batches]
    weights = {name: tokens for name in ("activity", *SHARES) if name in parts[0]}
    weights |= {"support": _questions(batches)}
    weights |= {
        name: [part[of] for part in parts] for name, of in (("attention_entropy", "queries"), ("distance", "pairs"))
    }
    tables = {name: _mean([part[name] for part in parts], weight) for name, weight in weights.items()}
    tables["activity"] = tables["activity"] / tables["activity"].sum(-1, keepdim=True)
    pooled, read = (_over_batches(parts, name) for name in ("pooled", "tokens"))
    tables |= {"cosine": heads.cosine_redundancy(pooled), "cka": heads.cka(pooled)}
    tables |= {"rank": heads.effective_rank(pooled), **dependence(pooled)}
    factors = [torch.cat([batch.factors[name][batch.mask] for batch in batches]) for name in batches[0].factors]
    return {**tables, "explained": torch.stack([explained(read, factor.long()) for factor in factors], -1)}


def _uniform(batch: StoryBatch, causal: bool) -> Float[Tensor, ""]:
    return attention.uniform_mass(attention.allowed(batch.mask, causal), batch.asked, batch.support)


def _questions(batches: Sequence[StoryBatch]) -> list[Tensor]:
    return [torch.tensor(batch.asked.numel()) for batch in batches]


def _mean(parts: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """Over batches, each with its weight, which may differ between heads."""
    values, shares = (torch.stack(list(tensors)).double() for tensors in (parts, weights))
    shares = shares.view(*shares.shape, *[1] * (values.dim() - shares.dim()))
    weighed = torch.where(shares > 0, shares * values, 0)  # what has no weight may be NaN
    return (weighed.sum(0) / shares.sum(0)).float()


def ablation_tables(member: Models, batches: Sequence[StoryBatch]) -> Named:
    """Ablate each head of a single member in turn: which answers go wrong, and in which stories."""
    layers, per_layer = member.settings.layers, member.settings.heads_per_layer
    right = _right(member, batches, ())
    every_head = product(range(layers), range(per_layer))
    without = torch.stack([_right(member, batches, (head,)) for head in every_head], 1)
    groups = question_groups(batches)
    tables = {
        "importance": attention.importance(right, without),
        "needed": attention.needed(right, without),
        "largest_drop": attention.largest_drop(right, without, groups),
        "dealt_drop": attention.chance_of_largest_drop(right, without, groups, stream(0, "groups")),
    }
    return {name: table.unflatten(1, (layers, per_layer)) for name, table in tables.items()}


def _right(member: Models, batches: Sequence[StoryBatch], ablated: Sequence[tuple[int, int]]) -> Bool[Tensor, "m n"]:
    """Which of all questions are answered right, without these heads."""
    logits = [member.read(member.forward(batch.tokens, ablate_heads=ablated), batch.asked) for batch in batches]
    right = [heads.right(said, batch.answers) for said, batch in zip(logits, batches, strict=True)]
    return torch.cat([of_batch.flatten(1) for of_batch in right], 1)


def question_groups(batches: Sequence[StoryBatch]) -> list[Int[Tensor, "n"]]:
    """Each way of grouping all questions."""
    answers = torch.cat([batch.answers.flatten() for batch in batches])
    order = torch.cat([torch.arange(batch.asked.shape[1]).expand_as(batch.asked).flatten() for batch in batches])
    distance = torch.cat([support_distance(batch) for batch in batches])
    known = distance[distance >= 0].double()
    edges = torch.tensor(QUARTERS).double()
    quarters = torch.bucketize(distance.double(), known.quantile(edges)) if len(known) else distance
    return [answers, order, torch.where(distance >= 0, quarters, -1)]


def support_distance(batch: StoryBatch) -> Int[Tensor, "n"]:
    """How many tokens before the question the last supporting one stands; -1 where nothing supports."""
    positions = torch.arange(batch.support.shape[-1]).expand_as(batch.support)
    last = torch.where(batch.support, positions, -1).amax(-1)
    return torch.where(last >= 0, batch.asked - last, -1).flatten()


def hopfield_scores(member: Models, batch: StoryBatch) -> Named:
    """Fixed points of the last layer's Hopfield heads, in the mean over stories and heads; {} for other attention."""
    if not isinstance(member, Transformers) or not isinstance(member.settings.attention, Hopfield):
        return {}
    tokens, mask = batch.tokens[:HOPFIELD_STORIES], batch.mask[:HOPFIELD_STORIES]
    layer = member.settings.layers - 1
    energy = hopfield_energy(member, tokens, layer)
    hook = f"blocks.{layer}.attn.hook_k"
    keys = member.forward(tokens, [hook]).recorded[hook].double()
    squares = keys.square().sum(-1).transpose(1, 2)[:, :, mask].mean((1, 2))
    return {
        "attractors": (energy.attractors / mask.sum(1)[:, None]).mean((1, 2)),
        "recalled": energy.patterns.flatten(1).nanmean(1),
        "store_separation": energy.separation.flatten(1).nanmean(1) / squares,
    }


@dataclass(frozen=True)
class AttentionExamples:
    """Stories in words with what is asked, answered and supported, and each head's attention on them."""

    stories: list[JsonDict]
    patterns: Float[np.ndarray, "b l h t s"]
    drawn: list[tuple[int, int]]
    """Layer and head of a few heads drawn at random, to be shown beside those that were chosen for what they do."""


@torch.no_grad()
def show_attention(member: Models, world: Stories, stories: int) -> AttentionExamples:
    """The first test stories, as a single member attends to and answers them, so that a report needs no model."""
    batch = world.batch(0, stories, split=SPLIT)
    hooks = [f"blocks.{layer}.{PATTERN}" for layer in range(member.settings.layers)]
    output = member.forward(batch.tokens, hooks)
    said = member.read(output, batch.asked)[0].argmax(-1)
    patterns = torch.stack([output.recorded[hook][0] for hook in hooks], 1)
    examples = [
        {
            "words": [world.vocabulary[word] for word in batch.tokens[index][batch.mask[index]].tolist()],
            "asked": batch.asked[index].tolist(),
            "answers": [world.answers[answer] for answer in batch.answers[index].tolist()],
            "said": [world.answers[answer] for answer in said[index].tolist()],
            "support": [row.nonzero()[:, 0].tolist() for row in batch.support[index]],
        }
        for index in range(stories)
    ]
    return AttentionExamples(examples, patterns.numpy().astype(np.float16), draw_heads(member))


def draw_heads(member: Models) -> list[tuple[int, int]]:
    """Layer and head of `DRAWN` different heads of a single member, or of all, drawn by its seed."""
    layers, per_layer = member.settings.layers, member.settings.heads_per_layer
    numbers = stream(member.seeds[0], "drawn heads").permutation(layers * per_layer)[:DRAWN]
    return [divmod(int(number), per_layer) for number in numbers]
