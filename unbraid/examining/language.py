"""Examine language models on the whole part of a text that was kept to be predicted, with chance beside every score.

loss                 mean over tokens of -log p(next token), in nats       every token but the first is predicted once
perplexity           exp(loss)
bits per character   loss / ln 2 / characters per token                    comparable between characters and byte pairs

Chance is what counting tokens in training gives, without looking at what came before; counting pairs is told beside it.
What heads do is told by whoever is handed in as `diagnose`, on the first windows of the same part.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from unbraid.axes import Float, Int, Tensor
from unbraid.examining.looking import PATTERN
from unbraid.metrics.counting import bigram_surprise, unigram_surprise
from unbraid.models import Models, start_models
from unbraid.worlds.text import Text

TOKENS = 1 << 14
"""So many are predicted at a time, about."""
PAIRS = 1 << 20
"""Of so many pairs of tokens, at most, heads are looked at."""

Named = dict[str, Tensor]


class Diagnosed(Protocol):
    """What is told of the heads of one model: scores `m`, their chance, and tables `m l h`."""

    @property
    def values(self) -> Named: ...
    @property
    def chance(self) -> Named: ...
    @property
    def tables(self) -> Named: ...


Diagnose = Callable[[Models, Tensor], Diagnosed]


@dataclass(frozen=True)
class Predicted:
    """Scores `m` and their chance `m`, and tables of layers and heads, `m l h`."""

    values: Named
    chance: Named
    tables: Named


@torch.no_grad()
def predict(models: Models, world: Text, windows: int, diagnose: Diagnose | None = None) -> Predicted:
    """All scores of every member; heads are looked at on so many windows, where there is somebody to do it."""
    tokens, chance = first_windows(world, windows), counted(world)["unigram"]
    words = len(world.vocabulary)
    untaught = start_models(models.settings, words, world.length, words, models.seeds)
    parts: list[tuple[Named, Named, Named]] = []
    for index in range(models.members):
        one = models.member(index)
        values = {name: torch.tensor([value]) for name, value in measures(loss_of(one, world), world).items()}
        values["parameters"] = torch.tensor([float(sum(p.numel() for p in one.parameters().values()))])
        floor = {name: torch.tensor([value]) for name, value in chance.items()}
        tables: Named = {}
        if diagnose is not None:
            heads, before = diagnose(one, tokens), diagnose(untaught.member(index), tokens).values
            values |= {f"untaught_{name}": value for name, value in before.items() if name.startswith("sharpness")}
            values, floor, tables = {**values, **heads.values}, {**floor, **heads.chance}, dict(heads.tables)
        parts.append((values, floor, tables))
    return Predicted(*(_joined(each) for each in zip(*parts, strict=True)))


def measures(loss: float, world: Text) -> dict[str, float]:
    """A loss, and the same loss in other units."""
    bits = loss / math.log(2) / world.characters_per_token
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "bits_per_character": bits}


@lru_cache(maxsize=4)
def counted(world: Text) -> dict[str, dict[str, float]]:
    """What counting tokens, and pairs of tokens, gives."""
    given = world.made.training, world.made.validation, len(world.vocabulary)
    surprises = {"unigram": unigram_surprise(*given), "bigram": bigram_surprise(*given)}
    return {name: measures(surprise, world) for name, surprise in surprises.items()}


def loss_of(one: Models, world: Text) -> float:
    """Of a single member, over everything that is to be predicted."""
    total, tokens = 0.0, 0
    for batch in world.held_out(max(1, TOKENS // world.context)):
        logits = one.read(one.forward(batch.tokens), batch.asked)[0]
        total += float(cross_entropy(logits.flatten(0, 1), batch.answers.flatten(), reduction="none").double().sum())
        tokens += batch.answers.numel()
    return total / tokens


def first_windows(world: Text, windows: int) -> Int[Tensor, "b t"]:
    """The first so many whole windows of what is predicted, or fewer where they are long."""
    most = max(1, min(windows, PAIRS // world.context**2))
    return next(iter(world.held_out(most))).tokens


@torch.no_grad()
def watch(one: Models, tokens: Int[Tensor, "b t"]) -> Float[np.ndarray, "b l h t s"]:
    """How every head of a single member looks at these windows."""
    names = [f"blocks.{layer}.{PATTERN}" for layer in range(one.settings.layers)]
    recorded = one.forward(tokens, names).recorded
    return torch.stack([recorded[name][0] for name in names], 1).float().numpy()


def _joined(parts: Sequence[Named]) -> Named:
    """Members after one another."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
