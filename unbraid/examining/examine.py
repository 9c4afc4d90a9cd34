"""Examine every member of a stack of models, with chance beside every score.

Chance is what a score would be without understanding: the best of a few rules of thumb that do not read the question
(accuracy), a head that looks at every key alike (spread, mean support), the same model before it was taught (support
of the best head, CKA, specialisation, separation), random directions (cosine), questions dealt to groups anew (the
quietest head). Each member is examined alone; the formulas are in `metrics/`: attention, heads, ablation, separation,
answering.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from pydantic import Field

from unbraid.axes import Tensor
from unbraid.config import Record
from unbraid.examining.looking import look
from unbraid.examining.remembering import remembered
from unbraid.examining.showing import SPLIT
from unbraid.examining.silencing import silence
from unbraid.metrics import answering, attention, heads
from unbraid.metrics.separation import separation
from unbraid.models import Models, start_models
from unbraid.worlds.stories import Stories, StoryBatch

BATCH = 64
IDLE = 0.01
"""A head is idle if silencing it spoils less than this share of answers."""

Named = dict[str, Tensor]


class Examining(Record):
    """On how many fresh stories models answer, and on how many of these their heads are looked at and silenced.

    Of `shown` stories the attention of every head is kept, for figures.
    """

    stories: int = Field(default=1024, ge=1, le=10**9)
    heads: int = Field(default=256, ge=1, le=10**6)
    shown: int = Field(default=2, ge=0, le=100)


@dataclass(frozen=True)
class Examination:
    """Scores `m` and their chance `m`, tables of layers and heads, `m l h …`; and what rules of thumb have."""

    values: Named
    chance: Named
    tables: Named
    shortcuts: dict[str, float]


@torch.no_grad()
def examine(models: Models, world: Stories, settings: Examining) -> Examination:
    """All scores of every member, on stories that no training has seen."""
    batches = fresh(world, settings.stories)
    looked = fresh(world, min(settings.heads, settings.stories))
    shortcuts = world.shortcuts()
    before = start_models(models.settings, len(world.vocabulary), world.length, len(world.answers), models.seeds)
    parts: list[tuple[Named, Named, Named]] = []
    for index in range(models.members):
        one = models.member(index)
        answered = {"accuracy": _accuracy(one, batches), "parameters": _parameters(one)}
        values, chance, tables = _heads(one, before.member(index), looked)
        answered |= remembered(one, looked[0])
        parts.append(({**answered, **values}, {"accuracy": torch.tensor([shortcuts["chance"]]), **chance}, tables))
    values, chance, tables = (_joined(each) for each in zip(*parts, strict=True))
    return Examination(values, chance, tables, shortcuts)


def fresh(world: Stories, stories: int) -> list[StoryBatch]:
    """So many stories, always the same, that no training has seen."""
    starts = range(0, stories, BATCH)
    return [world.batch(start // BATCH, BATCH, split=SPLIT).first(stories - start) for start in starts]


def _accuracy(one: Models, batches: Sequence[StoryBatch]) -> Tensor:
    answered = [one.read(one.forward(batch.tokens), batch.asked) for batch in batches]
    right = [answering.right(logits, batch.answers) for logits, batch in zip(answered, batches, strict=True)]
    return answering.accuracy(torch.cat(right, 1))


def _parameters(one: Models) -> Tensor:
    return torch.tensor([float(sum(p.numel() for p in one.parameters().values()))])


def _heads(one: Models, before: Models, batches: Sequence[StoryBatch]) -> tuple[Named, Named, Named]:
    """Everything about the heads of one member: scores, their chance, tables."""
    found, untaught, needs = look(one, batches), look(before, batches), silence(one, batches)
    values, start = _looks(found), _looks(untaught)
    values["importance_most"] = needs["importance"].flatten(1).amax(1)
    values["idle"] = (needs["needed"] < IDLE).double().mean((1, 2))
    values["quiet_drop"] = _of_quietest(found, needs["largest_drop"])
    chance = {name: start[name] for name in ("support_best", "specialisation", "head_cka", "separation")}
    chance |= {"support_mass": found["uniform"], "spread": torch.ones(1)}
    chance["head_cosine"] = torch.tensor([heads.expected_cosine(one.settings.width)])
    chance["quiet_drop"] = _of_quietest(found, needs["dealt_drop"])
    before_too = {f"{name}_untaught": untaught[name] for name in ("support", "spread")}
    return values, chance, {**found, **before_too, **needs}


def _looks(found: Named) -> Named:
    """One number a member: of the best head of all, or of the last layer, where constraints act unless told else."""
    last = {name: table[:, -1] for name, table in found.items() if table.dim() > 1}
    values = {
        "support_best": found["support"].flatten(1).amax(1),
        "support_mass": last["support"].mean(1),
        "spread": last["spread"].nanmean(1),
        "specialisation": attention.between_heads(last["distance"]),
        "head_cosine": attention.between_heads(last["cosine"]),
        "head_cka": attention.between_heads(last["cka"]),
        "separation": separation(found["explained"].flatten(1, 2)),
        "usage_evenness": heads.evenness(last["activity"]),
    }
    routed = {"routing_evenness": "usage", "expert_evenness": "experts"}
    return values | {name: heads.evenness(last[table]) for name, table in routed.items() if table in last}


def _of_quietest(found: Named, table: Tensor) -> Tensor:
    """What a table `m l h` says of the least active head of the last layer."""
    quietest = found["activity"][:, -1].argmin(-1, keepdim=True)
    return table[:, -1].gather(1, quietest)[:, 0]


def _joined(parts: Sequence[Named]) -> Named:
    """Members after one another."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
