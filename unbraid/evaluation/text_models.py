"""Evaluate language models on the held-out part of a text, with chance beside every score; and let them write.

    loss                 mean over tokens of -log p(next token), in nats    every token but the first is predicted once
    perplexity           exp(loss)
    bits per character   loss / ln 2 / characters per token                 comparable between characters and byte pairs
    a continuation       next token ~ softmax(logits / temperature), at temperature 0 the likeliest; never padding

Chance is a unigram model, which counts tokens in training and reads no context; a bigram model is reported beside it.
What heads do is measured by whoever is handed in as `diagnose`, on the first windows of the same part.
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
from unbraid.errors import UserError
from unbraid.evaluation.heads import PATTERN
from unbraid.metrics.language import bigram_surprise, unigram_surprise
from unbraid.metrics.text_beliefs import pair_beliefs
from unbraid.models import Models, start_models
from unbraid.worlds.text import Text

TOKENS = 1 << 14
"""Predicted at a time, about."""
PAIRS = 1 << 20
"""Pairs of tokens, at most, on which heads are measured."""
FROM_THE_START = ("sharpness", "mean_distance", "mean_deviation")
"""Scores, with those of each kind of head, that are told of untrained models too: what was there is not learned."""

Named = dict[str, Tensor]


class HeadDiagnosis(Protocol):
    """What is measured of the heads of one model: scores `m`, their chance, and tables `m l h`."""

    @property
    def values(self) -> Named: ...
    @property
    def chance(self) -> Named: ...
    @property
    def tables(self) -> Named: ...


Diagnose = Callable[[Models, Tensor], HeadDiagnosis]


@dataclass(frozen=True)
class TextScores:
    """Scores `m` and their chance `m`, and tables of layers and heads, `m l h`."""

    values: Named
    chance: Named
    tables: Named


@torch.no_grad()
def evaluate_text(models: Models, world: Text, windows: int, diagnose: Diagnose | None = None) -> TextScores:
    """Score every member on the held-out text; with `diagnose`, measure heads on so many windows.

    Parameters
    ----------
    models : Models
        m trained language models.
    world : Text
        The text they were trained on.
    windows : int
        Windows on which heads are measured.
    diagnose : function of (a single member, tokens `b t`), or None
        Measures heads, as `unbraid.evaluation.uniformity.diagnose`.

    Returns
    -------
    TextScores
        Loss, perplexity, bits per character and what `diagnose` finds, with their chance.
    """
    tokens, chance = first_windows(world, windows), ngram_baselines(world)["unigram"]
    words = len(world.vocabulary)
    untrained = start_models(models.settings, words, world.length, words, models.seeds)
    scores: list[tuple[Named, Named, Named]] = []
    for index in range(models.members):
        member = models.member(index)
        losses = loss_units(held_out_loss(member, world), world)
        values = {name: torch.tensor([value]) for name, value in losses.items()}
        values["parameters"] = torch.tensor([float(sum(p.numel() for p in member.parameters().values()))])
        floor = {name: torch.tensor([value]) for name, value in chance.items()}
        tables: Named = {}
        if diagnose is not None:
            heads, before = diagnose(member, tokens), diagnose(untrained.member(index), tokens).values
            values |= {f"untrained_{name}": value for name, value in before.items() if name.startswith(FROM_THE_START)}
            values, floor, tables = {**values, **heads.values}, {**floor, **heads.chance}, dict(heads.tables)
        scores.append((values, floor, tables))
    return TextScores(*(_joined(of_members) for of_members in zip(*scores, strict=True)))


def loss_units(loss: float, world: Text) -> dict[str, float]:
    """A loss in nats, and the same loss in other units."""
    bits = loss / math.log(2) / world.characters_per_token
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "bits_per_character": bits}


@lru_cache(maxsize=4)
def ngram_baselines(world: Text) -> dict[str, dict[str, float]]:
    """The losses of a unigram and a bigram model."""
    text = world.tokenized.training, world.tokenized.validation, len(world.vocabulary)
    losses = {"unigram": unigram_surprise(*text), "bigram": bigram_surprise(*text)}
    return {name: loss_units(loss, world) for name, loss in losses.items()}


@lru_cache(maxsize=4)
def beliefs_by_pairs(world: Text) -> Float[Tensor, "v k"]:
    """What tokens believe by what follows them in the training part."""
    return pair_beliefs(world.tokenized.training, len(world.vocabulary))


def held_out_loss(member: Models, world: Text) -> float:
    """Of a single member, over the whole held-out text, in nats a token."""
    total, tokens = 0.0, 0
    for batch in world.held_out(max(1, TOKENS // world.context)):
        logits = member.read(member.forward(batch.tokens), batch.asked)[0]
        total += float(cross_entropy(logits.flatten(0, 1), batch.answers.flatten(), reduction="none").double().sum())
        tokens += batch.answers.numel()
    return total / tokens


def first_windows(world: Text, windows: int) -> Int[Tensor, "b t"]:
    """The first so many whole windows of the held-out text, or fewer where they are long."""
    most = max(1, min(windows, PAIRS // world.context**2))
    return next(iter(world.held_out(most))).tokens


@torch.no_grad()
def attention_on(member: Models, tokens: Int[Tensor, "b t"]) -> Float[np.ndarray, "b l h t s"]:
    """The attention of every head of a single member on these windows."""
    hooks = [f"blocks.{layer}.{PATTERN}" for layer in range(member.settings.layers)]
    recorded = member.forward(tokens, hooks).recorded
    return torch.stack([recorded[hook][0] for hook in hooks], 1).float().numpy()


def _joined(parts: Sequence[Named]) -> Named:
    """Members after one another."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


@torch.no_grad()
def continue_text(
    models: Models, world: Text, prompt: str, tokens: int, seed: int = 0, temperature: float = 1.0
) -> list[str]:
    """Let language models write on after a prompt.

    Parameters
    ----------
    models : Models
        m language models.
    world : Text
        The text they were trained on; its tokenizer is used.
    prompt : str
        At least one character.
    tokens : int
        Number of tokens to write.
    seed : int, default 0
        Seeds the draws, together with the member's own seed.
    temperature : float, default 1.0
        Divides the logits; higher is more random, 0 takes the most likely token.

    Returns
    -------
    list of str
        The continuation of each member, without the prompt.

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Text(context=8)
    >>> words = len(world.vocabulary)
    >>> models = ub.start_models(ub.Transformer(d_model=8, heads=2, d_ff=8), words, world.length, words, seeds=[0, 1])
    >>> [len(text) for text in ub.continue_text(models, world, "The", tokens=4)]
    [4, 4]
    """
    if not prompt or tokens < 0 or not temperature >= 0:
        raise UserError(
            f"{tokens} tokens at temperature {temperature:g} after '{prompt:.20}' were asked for; accepted: a prompt "
            "of at least a character, tokens and temperature of at least 0"
        )
    tokenizer = world.tokenized.tokenizer
    begun = torch.from_numpy(tokenizer.encode(prompt)).long()[None]
    written = [models.module(index).generate(begun, tokens, temperature, seed) for index in range(models.members)]
    return [tokenizer.decode(of_member[0, begun.shape[1] :].tolist()) for of_member in written]
