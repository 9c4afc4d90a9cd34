"""Score dictionaries against planted factors: recovery, failure accounting, disentanglement.

A concept is one value of one factor, on at the tokens where the factor has that value:

    person = mary    place = kitchen    place of john = office    …

The stories held out are in two halves: thresholds, features and probes are chosen on one and measured on the other.

Chance of recovery and accounting is the mean of three random dictionaries of the same size and activation rule; of the
disentanglement scores the same code with the factors' rows shuffled. The ceiling of recovery is a linear probe on the
same activations. Codes are not linear: where a linear probe fails they can do better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.baselines.baseline import FittedBaseline
from unbraid.dictionaries.encoding import encode
from unbraid.dictionaries.stack import Stack
from unbraid.evaluation.dictionaries import random_dictionaries
from unbraid.metrics import probing
from unbraid.metrics.disentanglement import disentanglement
from unbraid.metrics.matching import association, verdicts
from unbraid.metrics.matching.thresholds import DEFAULT
from unbraid.randomness import stream
from unbraid.worlds.activations import Activations, LabelledRows

Numbers = dict[str, float]


@dataclass(frozen=True)
class Concepts:
    """Held-out rows, and which concepts are on at each."""

    rows: LabelledRows
    factors: tuple[str, ...]
    """The factor of each concept."""
    values: tuple[str, ...]
    """The value of that factor."""
    active: Bool[np.ndarray, "n c"]
    fit: Bool[np.ndarray, "n"]
    """Rows on which thresholds, features and probes are chosen."""

    @classmethod
    def of(cls, world: Activations, samples: int) -> "Concepts":
        rows = world.labelled_rows(samples)
        pairs = [(name, index, value) for name, values in world.factors.items() for index, value in enumerate(values)]
        active = np.stack([rows.factors[name] == index for name, index, _ in pairs], 1)
        factors, _, values = zip(*pairs, strict=True)
        return cls(rows, factors, values, active, rows.documents % 2 == 0)

    def label(self, concept: int) -> str:
        return f"{self.factors[concept]} = {self.values[concept]}"

    def of_factor(self, factor: str) -> Int[np.ndarray, "v"]:
        """The numbers of the concepts that are values of a factor, in the order of its values."""
        return np.flatnonzero(np.array(self.factors) == factor)

    def by_factor(self, scores: Sequence[float]) -> Numbers:
        """The mean score of the concepts of each factor, NaN left out; a factor without any score is left out."""
        array = np.asarray(scores, dtype=np.float64)
        names = dict.fromkeys(self.factors)
        by_name = {name: array[np.array([factor == name for factor in self.factors])] for name in names}
        return {name: float(np.nanmean(some)) for name, some in by_name.items() if not np.isnan(some).all()}


def probe_concepts(concepts: Concepts) -> list[float]:
    """φ of a linear probe for each concept; NaN where it is too rare."""
    return probing.probe_concepts(concepts.rows.x.numpy(), concepts.active, concepts.fit).phi.tolist()


@dataclass(frozen=True)
class ConceptMatches:
    """How the features of one dictionary match the concepts."""

    codes: sparse.csr_array
    matching: verdicts.ConceptMatching
    phi: Float[np.ndarray, "c"]
    """Of each concept with its best feature."""
    phi_k_features: Float[np.ndarray, "c"]
    """With a few features together."""


@dataclass(frozen=True)
class FactorScores:
    """Scores by name, one value a member, with their chance and ceiling; and each member's matches."""

    values: dict[str, list[float]]
    chance: dict[str, list[float]]
    ceiling: Numbers
    probe: list[float]
    """φ of a linear probe for each concept."""
    concepts: Concepts
    members: list[ConceptMatches]


def score_factors(
    dictionary: Stack | FittedBaseline, world: Activations, samples: int, probe: list[float] | None = None
) -> FactorScores:
    """Score every member against the factors behind the activations, on stories that no training has seen.

    Parameters
    ----------
    dictionary
        A stack of dictionaries, or a fitted baseline, that encodes vectors of the world's dimensions.
    world
        Activations whose factors are known (`world.factors` is not empty).
    samples
        How many held-out tokens to score on, at most.
    probe
        What `probe_concepts` gives, where it is known already.

    Returns
    -------
    Recovery, accounting and disentanglement of every member, with chance and ceiling.
    """
    concepts = Concepts.of(world, samples)
    probe = probe_concepts(concepts) if probe is None else probe
    members = [match_concepts(member, concepts) for member in members_of(dictionary)]
    drawn = random_dictionaries(dictionary, world.dimensions, "chance of factors")
    by_chance = _columns([_scores(match_concepts(random, concepts), concepts) for random in drawn])
    chance = {name: float(np.mean(column)) for name, column in by_chance.items()}
    entangled = [
        disentanglement(member.codes, concepts.rows.factors, concepts.fit, stream(index, "shuffled factors"))
        for index, member in enumerate(members)
    ]
    ceiling = float(np.nanmean(probe))
    values = [
        {
            **scores,
            "phi_share": from_chance(scores["phi"], chance["phi"], ceiling),
            "probe": ceiling,
            **more.scores,
        }
        for scores, more in zip([_scores(member, concepts) for member in members], entangled, strict=True)
    ]
    chances = [{**chance, "phi_share": 0.0, **more.chance} for more in entangled]
    return FactorScores(
        _columns(values), _columns(chances), _ceilings(probe, ceiling, concepts), probe, concepts, members
    )


def score_against_factors(
    dictionaries: Stack | Sequence[FittedBaseline], world: Activations, samples: int, probe: list[float]
) -> FactorScores:
    """The scores of a stack, or of several baselines one after the other."""
    if isinstance(dictionaries, Stack):
        return score_factors(dictionaries, world, samples, probe)
    scores = [score_factors(fitted, world, samples, probe) for fitted in dictionaries]
    values, chance = _joined([one.values for one in scores]), _joined([one.chance for one in scores])
    members = [member for one in scores for member in one.members]
    return FactorScores(values, chance, scores[0].ceiling, scores[0].probe, scores[0].concepts, members)


def match_concepts(dictionary: Stack | FittedBaseline, concepts: Concepts) -> ConceptMatches:
    """How the features of a single dictionary match the concepts."""
    codes = codes_to_rows(encode_rows(dictionary, concepts.rows.x))
    associated = association.associate(codes, concepts.active, concepts.fit)
    together = association.k_feature_phi(codes, concepts.active, concepts.fit, associated)
    matching = verdicts.match_concepts(codes, concepts.active, concepts.fit)
    return ConceptMatches(codes, matching, association.best(associated).phi, together)


def codes_to_rows(codes: Codes) -> sparse.csr_array:
    """The codes of a single member, one row a sample."""
    values = codes.values[0].double().numpy()
    if codes.features is None:
        return sparse.csr_array(values)
    rows, slots = np.nonzero(values)
    columns = codes.features[0].numpy()[rows, slots]
    indices = rows.astype(np.int32), columns.astype(np.int32)  # scikit-learn takes no longer ones
    return sparse.csr_array((values[rows, slots], indices), shape=(len(values), codes.width))


def slug(factor: str) -> str:
    """The name of a factor as it appears in the name of a score."""
    return factor.replace(" ", "_")


def from_chance(recovery: float, chance: float, probe: float) -> float:
    """Recovery on a scale from chance (0) to a linear probe (1); NaN where the probe is no better than chance."""
    return (recovery - chance) / (probe - chance) if probe > chance else float("nan")


def _scores(matches: ConceptMatches, concepts: Concepts) -> Numbers:
    return {
        "phi": float(np.nanmean(matches.phi)),
        **{f"phi_{slug(name)}": value for name, value in concepts.by_factor(matches.phi.tolist()).items()},
        "phi_k_features": float(np.nanmean(matches.phi_k_features)),
        **{
            f"phi_k_features_{slug(name)}": value
            for name, value in concepts.by_factor(matches.phi_k_features.tolist()).items()
        },
        **{f"factors_{name}": share for name, share in matches.matching.concept_shares().items()},
        **{f"features_{name}": share for name, share in matches.matching.feature_shares().items()},
    }


def _ceilings(probe: Sequence[float], mean: float, concepts: Concepts) -> Numbers:
    ceiling = {"phi": mean, "phi_k_features": mean, "phi_share": 1.0}
    for kind in ("phi", "phi_k_features"):
        ceiling |= {f"{kind}_{slug(name)}": value for name, value in concepts.by_factor(probe).items()}
    ceiling["factors_recovered"] = float(np.mean([value >= DEFAULT.good_phi for value in probe if not np.isnan(value)]))
    return ceiling


@torch.no_grad()
def encode_rows(dictionary: Stack | FittedBaseline, x: Float[Tensor, "n d"]) -> Codes:
    """The codes of a dictionary or baseline, by whichever way is its own."""
    return dictionary.encode(x) if isinstance(dictionary, FittedBaseline) else encode(dictionary, x)


def members_of(dictionary: Stack | FittedBaseline) -> list[Stack | FittedBaseline]:
    """Each member alone."""
    if isinstance(dictionary, FittedBaseline):
        return [dictionary]
    return [dictionary.member(index) for index in range(dictionary.members)]


def _columns(rows: list[Mapping[str, float]] | list[Numbers]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _joined(parts: Sequence[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Members after one another."""
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}
