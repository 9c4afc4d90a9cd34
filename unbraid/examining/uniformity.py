"""How uniform the heads of one language model look, and how diverse its beliefs are where it has any.

row_std, sharpness, effective_keys   m l h   each head; row_std is of the first sequence, as published
row_std_uniform                      m       what exactly uniform attention has at this length, under the same mask
kl_mean, kl_std                      m l h   divergences of a query from the keys before it, of each head by itself

The formulas are in `metrics/`: uniformity, diversity. Whether tokens see themselves is read from the attention itself.
"""

from dataclasses import dataclass

import torch

from unbraid.axes import Int, Tensor
from unbraid.metrics import attention, uniformity
from unbraid.metrics.diversity import Diversity, causal_spread, diversity
from unbraid.models import Models
from unbraid.models import hooks as recordable

Named = dict[str, Tensor]
PATTERN, KL = "attn.hook_pattern", "attn.hook_kl"
BELIEFS = tuple(f"embed.hook_{name}" for name in ("mean", "variance", "frame"))


@dataclass(frozen=True)
class Diagnosis:
    """Scores `m` and their chance `m`, and tables of layers and heads."""

    values: Named
    chance: Named
    tables: Named


@torch.no_grad()
def diagnose(one: Models, tokens: Int[Tensor, "b t"]) -> Diagnosis:
    """Everything about a single member, on these sequences; chance is attention to every allowed key alike."""
    tables, beliefs = _look(one, tokens)
    last, floor = tables["row_std"][:, -1], tables["row_std_uniform"]
    classes = [uniformity.classify(value) for value in tables["row_std"].flatten().tolist()]
    values = {
        "row_std": last.mean(1),
        "sharpness": tables["sharpness"][:, -1].mean(1),
        "sharp_heads": torch.tensor([float(classes.count("SHARP"))]),
        "medium_heads": torch.tensor([float(classes.count("MEDIUM"))]),
    }
    chance = {"row_std": floor, "sharpness": torch.zeros(1)}
    return Diagnosis(values | (_scores(beliefs) if beliefs else {}), chance, tables)


@torch.no_grad()
def lines(one: Models, tokens: Int[Tensor, "b t"]) -> list[str]:
    """The seed's console lines of the last layer, each beside the uniform floor; and of beliefs its diversity block."""
    tables, beliefs = _look(one, tokens[:1])
    floor, layers = tables["row_std_uniform"].item(), one.settings.layers
    where = f"Layer {layers - 1} " if layers > 1 else ""
    found = zip(one.settings.head_labels, tables["row_std"][0, -1].tolist(), strict=True)
    told = [
        f"{where}Head {head} ({label}): row_std={value:.4f} [{uniformity.classify(value)}] (uniform: {floor:.4f})"
        for head, (label, value) in enumerate(found)
    ]
    return told + (str(beliefs).split("\n") if beliefs else [])


def _look(one: Models, tokens: Int[Tensor, "b t"]) -> tuple[Named, Diversity | None]:
    """The tables of every layer, and how diverse the beliefs of the first sequence are, where there are any."""
    known, layers = set(recordable(one.settings)), range(one.settings.layers)
    believes = BELIEFS[0] in known
    hooks = (PATTERN, KL) if believes else (PATTERN,)
    names = [f"blocks.{layer}.{hook}" for layer in layers for hook in hooks]
    passed = one.forward(tokens, [*names, *(BELIEFS if believes else ())])
    patterns = [passed.recorded[f"blocks.{layer}.{PATTERN}"] for layer in layers]
    keys = attention.allowed(passed.sight.mask, passed.sight.causal)
    keys = uniformity.without_self(keys) if uniformity.is_self_masked(patterns[0]) else keys
    tables = {
        "row_std": torch.stack([uniformity.row_std(each) for each in patterns], 1),
        "sharpness": torch.stack([uniformity.sharpness(each, keys) for each in patterns], 1),
        "effective_keys": torch.stack([uniformity.effective_keys(each, keys) for each in patterns], 1),
        "row_std_uniform": uniformity.row_std(uniformity.uniform(keys))[:, 0],
    }
    if not believes:
        return tables, None
    divergences = [passed.recorded[f"blocks.{layer}.{KL}"] for layer in layers]
    means, deviations = zip(*(causal_spread(each) for each in divergences), strict=True)
    tables |= {"kl_mean": torch.stack(means, 1), "kl_std": torch.stack(deviations, 1)}
    first = [passed.recorded[name][0, 0] for name in BELIEFS]
    return tables, diversity(first[0], first[1], first[2], divergences[-1][0, 0])


def _scores(found: Diversity) -> Named:
    """The seed's numbers, and of divergences also those that attention sees."""
    values = {
        "kl_mean": found.kl.mean,
        "kl_std": found.kl.std,
        "kl_mean_causal": found.causal_kl.mean,
        "kl_std_causal": found.causal_kl.std,
        "mean_distance": found.mean_distance,
        "frame_deviation": found.frame_deviation,
        "variance_least": found.variance_least,
        "variance_mean": found.variance_mean,
        "variance_most": found.variance_most,
    }
    return {name: torch.tensor([value]) for name, value in values.items()}
