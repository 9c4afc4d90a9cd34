"""Write what a report shows of the features of a dictionary: every concept, and pages of chosen features.

features.json         of chosen members, the concepts and the pages
factors.safetensors   φ `m c` of every concept, and of the probe `c`

    concepts   factor, value, verdict, the features it rests on, φ, the probe's φ
    pages      of chosen features: verdict, its concepts, φ, how often and how strongly it fires, the stories in which
               it fires most strongly, token by token, and the features nearest to it

Chosen are the best match of every factor, and the most active feature of every other verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from unbraid.axes import Float, Int
from unbraid.config import JsonDict
from unbraid.dictionaries.baselines import FittedBaseline
from unbraid.dictionaries.stack import Stack
from unbraid.evaluation.factors import ConceptMatches, Concepts, FactorScores, score_against_factors
from unbraid.metrics.matching.verdicts import FeatureVerdict
from unbraid.storage.files import write_arrays, write_json
from unbraid.worlds import Activations, World

MAX_PAGES, STORIES, NEIGHBORS, BINS = 10, 4, 4, 24
OTHER_VERDICTS = ("duplicate", "mixture", "spurious")


@dataclass(frozen=True)
class FactorResults:
    """Scores of a stack as its `scores.json` has them; empty where no factors are known."""

    values: dict[str, Any] = field(default_factory=dict)
    chance: dict[str, Any] = field(default_factory=dict)
    ceiling: dict[str, Any] = field(default_factory=dict)


def evaluate_factors(
    dictionaries: Stack | Sequence[FittedBaseline],
    world: World,
    samples: int,
    probe: list[float],
    vocabulary: Sequence[str],
    shown: Sequence[int],
    folder: Path,
) -> FactorResults:
    """Score every member against the factors, where they are known, and write the pages of those shown."""
    if not isinstance(world, Activations) or not world.factors:
        return FactorResults()
    scores = score_against_factors(dictionaries, world, samples, probe)
    phi = np.stack([member.phi for member in scores.members])
    write_arrays(folder / "factors.safetensors", {"phi": phi, "probe": np.array(scores.probe)})
    pages = {
        str(member): FeaturePages.of(scores, member, vocabulary, _directions(dictionaries, member)).summary()
        for member in shown
    }
    write_json(folder / "features.json", {"members": pages})
    return FactorResults(scores.values, scores.chance, scores.ceiling)


def _directions(dictionaries: Stack | Sequence[FittedBaseline], member: int) -> Float[np.ndarray, "f d"]:
    if isinstance(dictionaries, Stack):
        return dictionaries.directions[member].cpu().numpy()
    return dictionaries[member].directions[0].cpu().numpy()


@dataclass(frozen=True)
class FeaturePages:
    """What is shown of one dictionary."""

    concepts: Concepts
    vocabulary: Sequence[str]
    probe: Sequence[float]
    matches: ConceptMatches
    directions: Float[np.ndarray, "f d"]

    @classmethod
    def of(
        cls, scores: FactorScores, member: int, vocabulary: Sequence[str], directions: Float[np.ndarray, "f d"]
    ) -> "FeaturePages":
        return cls(scores.concepts, vocabulary, scores.probe, scores.members[member], directions)

    def summary(self) -> JsonDict:
        return {"concepts": self._concepts(), "pages": [self._page(feature) for feature in self.chosen()]}

    def chosen(self) -> list[int]:
        """The best match of each factor, then the most active feature of each other verdict."""
        verdicts = self.matches.matching.features
        fired = np.asarray(self.matches.codes.astype(bool).sum(0)).ravel()
        best: dict[str, int] = {}
        for feature in sorted(range(len(verdicts)), key=lambda feature: (-verdicts[feature].phi, feature)):
            if verdicts[feature].verdict == "match":
                best.setdefault(self.concepts.factors[verdicts[feature].concepts[0]], feature)
        matches = list(best.values())[: MAX_PAGES - len(OTHER_VERDICTS)]
        most_active = np.argsort(-fired, kind="stable").tolist()
        others = [
            [feature for feature in most_active if verdicts[feature].verdict == verdict] for verdict in OTHER_VERDICTS
        ]
        return [*matches, *(features[0] for features in others if features)]

    def _concepts(self) -> list[JsonDict]:
        rows = zip(self.matches.matching.concepts, self.matches.phi.tolist(), self.probe, strict=True)
        return [
            {
                "factor": self.concepts.factors[number],
                "value": self.concepts.values[number],
                "verdict": concept.verdict,
                "features": list(concept.features),
                "phi": phi,
                "ceiling": ceiling,
                "share": float(self.concepts.active[:, number].mean()),
            }
            for number, (concept, phi, ceiling) in enumerate(rows)
        ]

    def _page(self, feature: int) -> JsonDict:
        values = self.matches.codes[:, [feature]].toarray()[:, 0]
        return {
            "feature": feature,
            **self._verdict(self.matches.matching.features[feature]),
            "fires": float((values != 0).mean()),
            "histogram": _histogram(values[values != 0]),
            "contexts": self._stories(values),
            "neighbours": self._neighbors(feature),
        }

    def _verdict(self, feature: FeatureVerdict) -> JsonDict:
        return {
            "verdict": feature.verdict,
            "concepts": [self.concepts.label(concept) for concept in feature.concepts],
            "phi": feature.phi,
            "threshold": feature.threshold if np.isfinite(feature.threshold) else None,
        }

    def _stories(self, values: Float[np.ndarray, "n"]) -> list[JsonDict]:
        """The stories in which it fires most strongly, each once."""
        documents, strength = self.concepts.rows.documents, np.abs(values)
        order = np.argsort(-strength, kind="stable")
        stories = list(dict.fromkeys(documents[order[strength[order] > 0]].tolist()))[:STORIES]
        return [self._story(np.flatnonzero(documents == story), values) for story in stories]

    def _story(self, rows: Int[np.ndarray, "t"], values: Float[np.ndarray, "n"]) -> JsonDict:
        words = [self.vocabulary[token] for token in self.concepts.rows.tokens[rows]]
        return {"words": words, "values": [round(float(value), 4) for value in values[rows]]}

    def _neighbors(self, feature: int) -> list[JsonDict]:
        """The features with the most similar directions, and the correlation of their values with this one's."""
        cosine = self.directions @ self.directions[feature]
        cosine[feature] = -np.inf
        nearest = np.argsort(-cosine, kind="stable")[: min(NEIGHBORS, len(cosine) - 1)].tolist()
        correlation = correlations(self.matches.codes, feature)
        return [
            {
                "feature": other,
                "cosine": float(cosine[other]),
                "correlation": float(correlation[other]),
                **self._verdict(self.matches.matching.features[other]),
            }
            for other in nearest
        ]


def correlations(codes: sparse.csr_array, feature: int) -> Float[np.ndarray, "f"]:
    """Pearson's correlation of every feature's values with one feature's; 0 where either never changes."""
    values = codes[:, [feature]].toarray()[:, 0]
    mean, square = np.asarray(codes.mean(0)).ravel(), np.asarray((codes**2).mean(0)).ravel()
    deviation = np.sqrt(np.maximum(square - mean**2, 0))
    covariance = np.asarray(codes.T @ values).ravel() / len(values) - mean * values.mean()
    scale = deviation * values.std()
    return np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0)


def _histogram(values: Float[np.ndarray, "k"]) -> JsonDict:
    if not len(values):
        return {"counts": [], "edges": []}
    counts, edges = np.histogram(values, bins=BINS)
    return {"counts": counts.tolist(), "edges": [round(float(edge), 5) for edge in edges]}
