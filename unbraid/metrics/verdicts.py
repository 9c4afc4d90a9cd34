"""The verdicts of `accounting`, whose rules stand there: how each is reached from what features stand for."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from unbraid.axes import Bool, Int
from unbraid.metrics.association import says
from unbraid.metrics.readings import GOOD, Readings, Union, precise, within
from unbraid.metrics.several import gather, union_phi


@dataclass(frozen=True)
class ConceptVerdict:
    """With the features it rests on (of a missed one the nearest), and the φ they reach together on rows held out."""

    verdict: str
    features: tuple[int, ...]
    phi: float


@dataclass(frozen=True)
class FeatureVerdict:
    """With what it stands for, its cut (it fires if side·x ≥ side·threshold), and φ and purity on the rows held out;
    of a spurious one those of the concept it is nearest to."""

    verdict: str
    concepts: tuple[int, ...]
    threshold: float
    side: int
    phi: float
    purity: float


def judge_features(
    readings: Readings, numbers: Int[np.ndarray, "c"], fired: Bool[np.ndarray, "f"]
) -> Iterator[FeatureVerdict]:
    """With the concepts' own numbers, of which some were left out."""
    alone, mixed, stands = readings.alone, readings.mixed, readings.stands()
    near = Union.of_one(readings.single, np.where(alone >= 0, alone, readings.start))
    way = near.grown(readings.union, mixed)
    ours = alone == np.arange(len(numbers))[:, None]
    matches = np.where(ours, readings.single.fit.phi(), -np.inf).argmax(1)
    heights, purities = way.held.phi()[0], way.held.purity()[0]
    for j in range(len(fired)):
        verdict = "dead" if not fired[j] else "mixture" if mixed[j] else "spurious"
        if alone[j] >= 0:
            verdict = "match" if matches[alone[j]] == j else "duplicate"
        cut = float(way.thresholds[j]), int(way.sides[j])
        yield FeatureVerdict(
            verdict, tuple(numbers[stands[:, j]].tolist()), *cut, float(heights[j]), float(purities[j])
        )


def judge_concepts(
    codes: sparse.csr_array, concepts: Bool[np.ndarray, "n c"], fit: Bool[np.ndarray, "n"], readings: Readings
) -> Iterator[ConceptVerdict]:
    """In the order of the rules: one feature, several, several and narrower ones, one for several concepts, none."""
    height, measured = readings.single.fit.phi(), readings.single.held.phi()
    own, narrower = _kinds(concepts[fit], readings)
    unions = _unions(codes, concepts, fit, readings)
    columns = sparse.csc_array(codes)
    for c in range(concepts.shape[1]):
        ranked = np.argsort(-height[c], kind="stable")  # so that of equal ones the better comes first
        mine, others = (ranked[kind[c, ranked]] for kind in (own, narrower))
        if len(mine) and measured[c, mine[0]] >= GOOD:
            yield ConceptVerdict("recovered", (int(mine[0]),), float(measured[c, mine[0]]))
            continue
        parts = _parts(columns, concepts[:, c], fit, readings, c, (mine, others))
        yield parts or _shared(height[c], measured[c], unions[c], readings.union)


def _kinds(concepts: Bool[np.ndarray, "n c"], readings: Readings) -> tuple[np.ndarray, np.ndarray]:
    """The features that stand alone for each concept (or nearly the same), and those precise for it but narrower."""
    inside = within(concepts, concepts)
    own = (inside & inside.T)[:, readings.alone] & (readings.alone >= 0)
    rows = concepts.astype(np.float32) @ readings.stands() > 0
    return own, within(rows, concepts).T & precise(readings.single.fit) & ~own


def _unions(
    codes: sparse.csr_array, concepts: np.ndarray, fit: np.ndarray, readings: Readings
) -> Bool[np.ndarray, "c f"]:
    """Where a concept is merged in a feature's union: the union is said well, and the concept with it."""
    union = readings.union
    held = says(codes, union.thresholds, union.sides)[~fit]
    true = held.T @ concepts[~fit].astype(np.float32)
    recalled = true.T / concepts[~fit].sum(0)[:, None] >= GOOD
    return union.members & (union.members.sum(0) > 1) & recalled & (union.held.phi() >= GOOD)


def _parts(
    codes: sparse.csc_array,
    on: np.ndarray,
    fit: np.ndarray,
    readings: Readings,
    concept: int,
    kinds: tuple[np.ndarray, np.ndarray],
) -> ConceptVerdict | None:
    """Whether features say a concept together: its own, and if these are too few, those of narrower ones."""
    chosen: list[int] = []
    covered = np.zeros(len(on), bool)
    for name, features in zip(("split", "absorbed"), kinds, strict=True):
        cut = readings.single.thresholds[concept, features], readings.single.sides[concept, features]
        said = sparse.csc_array(says(sparse.csr_array(codes[:, features]), *cut))
        more = gather(sparse.csr_array(said[fit].T), on[fit], covered[fit])
        chosen += features[more].tolist()
        covered = covered | np.asarray(said[:, more].sum(1) > 0)
        reached = union_phi(covered[~fit], on[~fit])
        if reached >= GOOD:
            return ConceptVerdict(name, tuple(sorted(chosen)), reached)
    return None


def _shared(height: np.ndarray, measured: np.ndarray, unions: np.ndarray, union: Union) -> ConceptVerdict:
    """Merged with others in a feature, or missed."""
    best = int(height.argmax())
    if unions.any():
        chosen = int(np.where(unions, union.fit.phi()[0], -np.inf).argmax())
        return ConceptVerdict("merged", (chosen,), float(union.held.phi()[0, chosen]))
    return ConceptVerdict("merged" if measured[best] >= GOOD else "missed", (best,), float(measured[best]))
