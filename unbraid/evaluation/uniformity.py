"""Look at how far a model's heads are from looking everywhere alike, and at how different the beliefs are behind it.

row_std, sharpness, effective_keys   m l h   of every head (metrics/uniformity)
row_std_uniform                      m       what exactly uniform attention has at this length: the floor of row_std
kl_mean, kl_std                      m l h   of gauge heads, over queries and the keys before them (metrics/diversity)
expected_sharpness                   m 1 h   of the first layer's gauge heads, if beliefs as far apart were drawn
                                             at random (metrics/kl_spread)

As scores: row_std and sharpness of all heads of the last layer, and of those of each kind (`sharpness_l0` of scalar
heads); how many heads of any layer the seed would call sharp, or medium; what its [DIVERSITY] block says, and of each
irrep how far apart its means are and what transport does to them; the share of tensor heads; the smallest head that is
sharp, by theory, by the pairs of the text alone (metrics/text_beliefs), and as measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.metrics import attention
from unbraid.metrics.catalog import MEDIUM, SHARP, classify_row_std
from unbraid.metrics.gaussians import (
    Diversity,
    Rule,
    Statistics,
    causal_spread,
    diversity,
    expected_sharpness,
    mean_deviation,
    mean_distance,
    smallest_sharp,
    tensor_share,
    transport_effect,
)
from unbraid.metrics.text_beliefs import first_above, text_sharpness
from unbraid.models import GaugeModels, Models
from unbraid.models.gauge import Family, Gauge
from unbraid.models.gauge.frames import turns

Named = dict[str, Tensor]
BELIEFS = ("mean", "variance", "frame")
HALF = 0.5
"""A sharpness: half way from uniform to a single token."""


@dataclass(frozen=True)
class Diagnosis:
    """Scores `m` and their chance `m`, and tables `m l h`."""

    values: Named
    chance: Named
    tables: Named


@torch.no_grad()
def diagnose(member: Models, tokens: Int[Tensor, "b t"], believed: Float[Tensor, "v k"] | None = None) -> Diagnosis:
    """Of a single member, on these windows; with what tokens believe by the text's pairs, also what that predicts."""
    recorded = _recorded(member, tokens)
    parts = [_layer(member, recorded, layer, tokens) for layer in range(member.settings.layers)]
    tables = {name: torch.stack([part[name] for part in parts], 1) for name in parts[0]}
    floor = attention.uniform_row_std(tokens.shape[1], attention.is_self_masked(recorded[_at(0, "pattern")]))
    tables["row_std_uniform"] = torch.tensor([floor])
    if isinstance(member, GaugeModels):
        tables["expected_sharpness"] = _expected(member, recorded, tokens.shape[1])[None, None]
    values = _values(member, tables)
    if isinstance(member, GaugeModels):
        values["tensor_share"] = torch.tensor([tensor_share(_degrees(member.settings))])
        values["smallest_sharp_measured"] = torch.tensor([_smallest_measured(member.settings, tables["sharpness"])])
        if member.settings.temperature != "learned":
            values["smallest_sharp"] = torch.tensor([_smallest(member, recorded, tokens.shape[1])])
            values |= {} if believed is None else _by_pairs(member.settings, tokens, believed)
    chance = {name: torch.tensor([floor]) for name in values if name.startswith("row_std")}
    chance |= {name: torch.zeros(1) for name in values if name.startswith("sharpness")}
    values["query_variation"], chance["query_variation"] = _variation(member, recorded, tokens)
    values |= {name: torch.tensor([value]) for name, value in _of_beliefs(member, recorded).items()}
    return Diagnosis(values, chance, tables)


@torch.no_grad()
def track(member: Models, tokens: Int[Tensor, "b t"]) -> dict[str, float]:
    """What of a single member's beliefs and heads is kept while it trains, on the first of these windows.

    What the seed prints of diversity, the same by irrep, and the sharpness of each kind of head; nothing of a model
    without beliefs.
    """
    if not isinstance(member, GaugeModels):
        return {}
    recorded = _recorded(member, tokens[:1])
    last = _layer(member, recorded, member.settings.layers - 1, tokens[:1])["sharpness"]
    sharp = _by_kind(member.settings.head_labels, "sharpness", last)
    return {**_of_beliefs(member, recorded), **{name: value.item() for name, value in sharp.items()}}


@torch.no_grad()
def lines(member: Models, tokens: Int[Tensor, "b t"]) -> list[str]:
    """What the seed prints while it trains: a line a head of the last layer, and the [DIVERSITY] block."""
    recorded = _recorded(member, tokens[:1])
    pattern = recorded[_at(member.settings.layers - 1, "pattern")]
    floor = attention.uniform_row_std(tokens.shape[1], attention.is_self_masked(pattern))
    found = attention.row_std(pattern)[0].tolist()
    said = [
        f"Head {head} ({label}): row_std={value:.4f} [{classify_row_std(value)}] (uniform: {floor:.4f})"
        for head, (label, value) in enumerate(zip(member.settings.head_labels, found, strict=True))
    ]
    beliefs = _beliefs(member, recorded)
    return said if beliefs is None else [*said, *str(beliefs).splitlines()]


def _at(layer: int, hook: str) -> str:
    return f"blocks.{layer}.attn.hook_{hook}"


def _recorded(member: Models, tokens: Int[Tensor, "b t"]) -> Named:
    known = member.settings.hooks()
    wanted = [_at(layer, hook) for layer in range(member.settings.layers) for hook in ("pattern", "kl")]
    wanted += [f"embed.hook_{part}" for part in BELIEFS]
    return member.forward(tokens, [name for name in wanted if name in known]).recorded


def _layer(member: Models, recorded: Named, layer: int, tokens: Int[Tensor, "b t"]) -> Named:
    pattern = recorded[_at(layer, "pattern")]
    keys = attention.allowed(tokens != 0, member.settings.causal)
    if attention.is_self_masked(pattern):
        keys = attention.without_self(keys)
    found = {
        "row_std": attention.row_std(pattern),
        "sharpness": attention.sharpness(pattern, keys),
        "effective_keys": attention.mean_effective_keys(pattern, keys),
    }
    if (kl := recorded.get(_at(layer, "kl"))) is not None:
        found["kl_mean"], found["kl_std"] = causal_spread(kl)
    return found


def _values(member: Models, tables: Named) -> Named:
    labels = member.settings.head_labels
    last = {name: table[:, -1] for name, table in tables.items() if table.dim() == 3}
    values: Named = {}
    for name in ("row_std", "sharpness", "expected_sharpness"):
        if name not in last:
            continue
        values |= _by_kind(labels, name, last[name])
    values["sharp_heads"] = (tables["row_std"] > SHARP).double().sum((1, 2))
    values["medium_heads"] = (tables["row_std"] > MEDIUM).double().sum((1, 2)) - values["sharp_heads"]
    return values


def _by_kind(labels: Sequence[str], name: str, table: Float[Tensor, "m h"]) -> Named:
    """The mean over all heads, and over those of each kind."""
    kinds = {label: torch.tensor([each == label for each in labels]) for label in labels}
    return {name: table.mean(-1), **{_named(name, label): table[:, own].mean(-1) for label, own in kinds.items()}}


def _named(name: str, label: str) -> str:
    """The score of one kind of head: `sharpness_l0`."""
    return f"{name}_{label.replace('ℓ', 'l')}"


def _degrees(settings: Gauge) -> list[int]:
    return [family.degree for family in settings.families for _ in range(family.heads)]


def _rule(settings: Gauge) -> Rule:
    return "shared" if settings.temperature == "shared" else "head"


def _smallest_measured(settings: Gauge, sharp: Float[Tensor, "1 l h"]) -> float:
    """The least width of a head of the last layer that is sharp; NaN: none is."""
    heads = zip(_degrees(settings), sharp[0, -1].tolist(), strict=True)
    return min((2.0 * degree + 1 for degree, value in heads if value > HALF), default=math.nan)


def _by_pairs(settings: Gauge, tokens: Int[Tensor, "b t"], believed: Float[Tensor, "v k"]) -> Named:
    """What heads would have if tokens believed what the text's pairs say: of each kind, and the least width."""
    kappa = settings.kappa_of(1)
    found = text_sharpness(believed, tokens, kappa, _rule(settings), self_masked=not settings.self_attention)
    widths = [min(2 * degree + 1, len(found)) for degree in _degrees(settings)]
    of_heads = found[[width - 1 for width in widths]][None]
    least = first_above(found, HALF)
    smallest = torch.tensor([math.nan if least is None else float(least)])
    return {**_by_kind(settings.head_labels, "text_sharpness", of_heads), "smallest_sharp_text": smallest}


def _expected(member: GaugeModels, recorded: Named, length: int) -> Float[Tensor, "h"]:
    """What each head would have if its tokens' beliefs were drawn independently, as far apart as they are."""
    frame = recorded["embed.hook_frame"][0].flatten(0, 1)
    turned = turns(frame, {family.degree for family in member.settings.families})
    mean, variance = (recorded[f"embed.hook_{part}"][0].flatten(0, 1) for part in ("mean", "variance"))
    found: list[float] = []
    for family, kappa in zip(member.settings.families, member.kappas(0), strict=True):
        means = torch.einsum("nij,nhi->nhj", turned[family.degree], _of(family, mean))
        for head in range(family.heads):
            statistics = Statistics.of(means[:, head], _of(family, variance)[:, head])
            own = kappa[0, head].item()
            found.append(expected_sharpness(statistics, family.width, own, length, not member.settings.self_attention))
    return torch.tensor(found)


def _smallest(member: GaugeModels, recorded: Named, length: int) -> float:
    """The least width of a head that would be sharp with beliefs as far apart as these in the mean; NaN: none would."""
    settings = member.settings
    kappa = settings.kappa_of(1)
    statistics = Statistics.of(*(recorded[f"embed.hook_{part}"][0].flatten(0, 1) for part in ("mean", "variance")))
    found = smallest_sharp(statistics, kappa, _rule(settings), length, HALF, self_masked=not settings.self_attention)
    return math.nan if found is None else float(found)


def _variation(
    member: Models, recorded: Named, tokens: Int[Tensor, "b t"]
) -> tuple[Float[Tensor, "1"], Float[Tensor, "1"]]:
    """The published query_var of the last layer, and that of uniform attention."""
    pattern = recorded[_at(member.settings.layers - 1, "pattern")]
    keys = attention.allowed(tokens != 0, member.settings.causal)
    if attention.is_self_masked(pattern):
        keys = attention.without_self(keys)
    found = (attention.query_variation(each) for each in (pattern, attention.uniform_attention(keys)))
    measured, floor = (each.mean(-1) for each in found)
    return measured, floor


def _of(family: Family, columns: Float[Tensor, "n d"]) -> Float[Tensor, "n h e"]:
    return columns[:, family.columns].unflatten(-1, (family.heads, family.width))


def _beliefs(member: Models, recorded: Named) -> Diversity | None:
    """Of the first sequence, where tokens hold any; divergences as the last layer has them."""
    if "embed.hook_mean" not in recorded:
        return None
    mean, variance, frame = (recorded[f"embed.hook_{part}"][0, 0] for part in BELIEFS)
    return diversity(mean, variance, frame, recorded[_at(member.settings.layers - 1, "kl")][0, 0])


def _of_beliefs(member: Models, recorded: Named) -> dict[str, float]:
    """What is said of the beliefs of the first sequence, of all heads and of each irrep; nothing without beliefs."""
    if not isinstance(member, GaugeModels) or (beliefs := _beliefs(member, recorded)) is None:
        return {}
    labels, families = member.settings.head_labels, member.settings.families
    mean, frame = recorded["embed.hook_mean"][0, 0], recorded["embed.hook_frame"][0, 0]
    turned = turns(frame, {family.degree for family in families})
    own = [_of(family, mean) for family in families]
    common = [torch.einsum("tij,thi->thj", turned[family.degree], of) for family, of in zip(families, own, strict=True)]
    tables = {
        "mean_distance": [mean_distance(head) for of in own for head in of.unbind(1)],
        "mean_deviation": [mean_deviation(head) for of in common for head in of.unbind(1)],
        "transport_effect": [
            effect
            for family, of in zip(families, own, strict=True)
            for effect in transport_effect(of, turned[family.degree]).tolist()
        ],
    }
    by_irrep = {
        score: value.item()
        for name, table in tables.items()
        for score, value in _by_kind(labels, name, torch.tensor([table])).items()
    }
    return {**by_irrep, **_told(beliefs)}


def _told(beliefs: Diversity) -> dict[str, float]:
    return {
        "kl_mean": beliefs.kl.mean,
        "kl_std": beliefs.kl.std,
        "kl_mean_causal": beliefs.causal_kl.mean,
        "kl_std_causal": beliefs.causal_kl.std,
        "mean_distance": beliefs.mean_distance,
        "frame_deviation": beliefs.frame_deviation,
        "variance_least": beliefs.variance_least,
        "variance_mean": beliefs.variance_mean,
        "variance_most": beliefs.variance_most,
    }
