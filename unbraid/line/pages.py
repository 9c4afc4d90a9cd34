"""What a report shows of the features of a dictionary: what became of every concept, and pages of chosen features.

    concepts   factor, value, verdict, the features it rests on, φ, the probe's φ
    pages      of chosen features: verdict, what it stands for, φ, how often and how strongly it fires, the stories in
               which it fires most, word by word, and the features nearest to it

Chosen are the best match of every factor, and the most active feature of every other verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from unbraid.axes import Float, Int
from unbraid.config import Tree
from unbraid.line.scoring import FactorScores, Read
from unbraid.line.truth import Truth
from unbraid.metrics.verdicts import FeatureVerdict

MOST_PAGES, CONTEXTS, NEIGHBOURS, BINS = 10, 4, 4, 24
OTHERS = ("duplicate", "mixture", "spurious")


@dataclass(frozen=True)
class Pages:
    """Writes about one member of a stack."""

    truth: Truth
    vocabulary: Sequence[str]
    probe: Sequence[float]
    read: Read
    directions: Float[np.ndarray, "f d"]

    @classmethod
    def of(
        cls, scores: FactorScores, member: int, vocabulary: Sequence[str], directions: Float[np.ndarray, "f d"]
    ) -> "Pages":
        return cls(scores.truth, vocabulary, scores.probe, scores.members[member], directions)

    def card(self) -> Tree:
        return {"concepts": self._concepts(), "pages": [self._page(feature) for feature in self.chosen()]}

    def chosen(self) -> list[int]:
        """The best match of each factor, then the most active feature of each other verdict."""
        verdicts = self.read.account.features
        fired = np.asarray(self.read.codes.astype(bool).sum(0)).ravel()
        best: dict[str, int] = {}
        for feature in sorted(range(len(verdicts)), key=lambda one: (-verdicts[one].phi, one)):
            if verdicts[feature].verdict == "match":
                best.setdefault(self.truth.factors[verdicts[feature].concepts[0]], feature)
        matches = list(best.values())[: MOST_PAGES - len(OTHERS)]
        kinds = [[one for one in np.argsort(-fired, kind="stable") if verdicts[one].verdict == kind] for kind in OTHERS]
        return [*matches, *(int(kind[0]) for kind in kinds if kind)]

    def _concepts(self) -> list[Tree]:
        told = zip(self.read.account.concepts, self.read.recovery.tolist(), self.probe, strict=True)
        return [
            {
                "factor": self.truth.factors[number],
                "value": self.truth.values[number],
                "verdict": found.verdict,
                "features": list(found.features),
                "phi": recovery,
                "ceiling": probe,
                "share": float(self.truth.concepts[:, number].mean()),
            }
            for number, (found, recovery, probe) in enumerate(told)
        ]

    def _page(self, feature: int) -> Tree:
        values = self.read.codes[:, [feature]].toarray()[:, 0]
        return {
            "feature": feature,
            **self._said(self.read.account.features[feature]),
            "fires": float((values != 0).mean()),
            "histogram": _histogram(values[values != 0]),
            "contexts": self._contexts(values),
            "neighbours": self._neighbours(feature),
        }

    def _said(self, found: FeatureVerdict) -> Tree:
        return {
            "verdict": found.verdict,
            "concepts": [self.truth.label(concept) for concept in found.concepts],
            "phi": found.phi,
            "threshold": found.threshold if np.isfinite(found.threshold) else None,
        }

    def _contexts(self, values: Float[np.ndarray, "n"]) -> list[Tree]:
        """The stories in which it fires most strongly, each once."""
        told, strength = self.truth.told, np.abs(values)
        order = np.argsort(-strength, kind="stable")
        stories = list(dict.fromkeys(told.documents[order[strength[order] > 0]].tolist()))[:CONTEXTS]
        return [self._story(np.flatnonzero(told.documents == story), values) for story in stories]

    def _story(self, rows: Int[np.ndarray, "t"], values: Float[np.ndarray, "n"]) -> Tree:
        words = [self.vocabulary[token] for token in self.truth.told.tokens[rows]]
        return {"words": words, "values": [round(float(value), 4) for value in values[rows]]}

    def _neighbours(self, feature: int) -> list[Tree]:
        """The features whose directions are most like this one's, and how their firing goes along with its."""
        cosine = self.directions @ self.directions[feature]
        cosine[feature] = -np.inf
        nearest = np.argsort(-cosine, kind="stable")[: min(NEIGHBOURS, len(cosine) - 1)].tolist()
        together = correlations(self.read.codes, feature)
        return [
            {
                "feature": other,
                "cosine": float(cosine[other]),
                "correlation": float(together[other]),
                **self._said(self.read.account.features[other]),
            }
            for other in nearest
        ]


def correlations(codes: sparse.csr_array, feature: int) -> Float[np.ndarray, "f"]:
    """Pearson's, of every feature's values with one's; 0 where either never changes."""
    own = codes[:, [feature]].toarray()[:, 0]
    mean, square = np.asarray(codes.mean(0)).ravel(), np.asarray((codes**2).mean(0)).ravel()
    spread = np.sqrt(np.maximum(square - mean**2, 0))
    together = np.asarray(codes.T @ own).ravel() / len(own) - mean * own.mean()
    scale = spread * own.std()
    return np.divide(together, scale, out=np.zeros_like(together), where=scale > 0)


def _histogram(values: Float[np.ndarray, "k"]) -> Tree:
    if not len(values):
        return {"counts": [], "edges": []}
    counts, edges = np.histogram(values, bins=BINS)
    return {"counts": counts.tolist(), "edges": [round(float(edge), 5) for edge in edges]}
