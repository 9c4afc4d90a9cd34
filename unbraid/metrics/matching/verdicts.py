"""One verdict for every concept and one for every feature; shares that add up to one.

Firing thresholds and choices come from the rows to fit on, φ from the others. Names in `code` are fields of
`MatchingThresholds`.

**What a feature is assigned to**

sure     φ·√n ≥ `sure_z`: a feature that fires twice is soon right twice. Among n rows that are independent chance gives
         φ·√n a spread of 1; among tokens of stories, where much lasts for a story, a larger one
precise  sure, and purity ≥ `precise_purity`
start    the concept of the largest φ
union    the start, and then one by one the concept of the largest φ(union) among those it is sure of, if neither this
         nor one in the union is nested (`nested_share`) in the other; if of the rows said it and the union before it
         have `union_share` each; and if φ(union) rises by `least_gain` or, as long as the union is not precise, its
         purity does. At most `most_parts`; the cut is chosen anew for each union.
alone    the start if precise for it; otherwise, unless precise for a union of two or more, the start if φ ≥ `good_phi`,
         or the concept of the largest φ of those it is precise for

**A concept**, the first that applies

recovered  of the features assigned to it alone the best has φ ≥ `good_phi`
split      the OR of 2 to `most_parts` features assigned to it alone has φ ≥ `good_phi`
absorbed   so has the OR of these, if any, and of 1 to `most_parts` that are precise for it but assigned to something
           narrower (a concept or union nested in it): the general feature is silent where a more specific one fires
merged     a feature's union of 2 to `most_parts` concepts has it in it, with φ(union) and recall of this one
           ≥ `good_phi`; or its best feature has φ ≥ `good_phi`, but is assigned to another concept
missed     none of these
unjudged   on, or off, in fewer than `fewest_rows` rows of either half: left out of the shares, and of all that is said
           of features

**A feature**, the first that applies

dead       never fires on any row
match      assigned to a concept alone, with the largest φ of all that are
duplicate  assigned alone to a concept that has another match: says the same, or a part of it, again
mixture    assigned to a union of 2 to `most_parts` concepts
spurious   none of these

Concepts nested in each other both ways are one and the same: what is assigned to one is assigned to the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from unbraid.axes import Bool, Float, Int
from unbraid.metrics.matching.association import (
    Association,
    Counts,
    add_features,
    associate,
    fires_beyond,
    union_phi,
)
from unbraid.metrics.matching.thresholds import DEFAULT, MatchingThresholds

CONCEPTS = ("recovered", "split", "absorbed", "merged", "missed")
FEATURES = ("match", "duplicate", "mixture", "spurious", "dead")
UNJUDGED = "unjudged"
FEATURES_AT_ONCE = 1024
"""Features whose unions grow together, for the sake of memory."""


@dataclass(frozen=True)
class ConceptVerdict:
    """With the features it rests on (of a missed one the nearest), and the φ they reach together on rows held out."""

    verdict: str
    features: tuple[int, ...]
    phi: float


@dataclass(frozen=True)
class FeatureVerdict:
    """With its concepts, its cut (it fires if side·x ≥ side·threshold), and φ and purity on the rows held out;
    of a spurious one those of the concept it is nearest to."""

    verdict: str
    concepts: tuple[int, ...]
    threshold: float
    side: int
    phi: float
    purity: float


@dataclass(frozen=True)
class ConceptMatching:
    """One verdict for every concept and one for every feature, in their order."""

    concepts: tuple[ConceptVerdict, ...]
    features: tuple[FeatureVerdict, ...]

    def concept_shares(self) -> dict[str, float]:
        """Of the concepts that are judged; NaN where none is."""
        return _shares([concept.verdict for concept in self.concepts if concept.verdict != UNJUDGED], CONCEPTS)

    def feature_shares(self) -> dict[str, float]:
        """Of all features."""
        return _shares([feature.verdict for feature in self.features], FEATURES)


def match_concepts(
    codes: sparse.csr_array,
    concepts: Bool[np.ndarray, "n c"],
    fit: Bool[np.ndarray, "n"],
    thresholds: MatchingThresholds = DEFAULT,
) -> ConceptMatching:
    """The verdicts on c concepts and the f features of `codes` (n × f).

    Everything is chosen on the rows `fit` and measured on the others.
    """
    fewest = [np.minimum(concepts[half].sum(0), (~concepts[half]).sum(0)) for half in (fit, ~fit)]
    kept = np.flatnonzero(np.minimum(*fewest) >= thresholds.fewest_rows)
    fired = np.asarray(codes.astype(bool).sum(0)) > 0
    judged = [ConceptVerdict(UNJUDGED, (), float("nan"))] * concepts.shape[1]
    if not len(kept):
        unread = (FeatureVerdict("spurious" if fires else "dead", (), float("inf"), 1, 0.0, 0.0) for fires in fired)
        return ConceptMatching(tuple(judged), tuple(unread))
    assignments = assign_concepts(codes, concepts[:, kept], fit, thresholds)
    verdicts = judge_concepts(codes, concepts[:, kept], fit, assignments)
    for number, verdict in zip(kept.tolist(), verdicts, strict=True):
        judged[number] = verdict
    return ConceptMatching(tuple(judged), tuple(judge_features(assignments, kept, fired)))


@dataclass(frozen=True)
class Union:
    """Each feature's union of concepts, its cut, and what that counts (one row)."""

    members: Bool[np.ndarray, "c f"]
    thresholds: Float[np.ndarray, "f"]
    sides: Int[np.ndarray, "f"]
    fit: Counts
    held: Counts

    @classmethod
    def of_one(cls, found: Association, concept: Int[np.ndarray, "f"]) -> "Union":
        """Of a single concept for each feature."""
        columns = np.arange(len(concept))
        cut = found.thresholds[concept, columns], found.sides[concept, columns]
        counts = (half.each(lambda table: table[concept, columns][None]) for half in (found.fit, found.held))
        return cls(np.arange(len(found.thresholds))[:, None] == concept, *cut, *counts)

    def of(self, features: Int[np.ndarray, "g"]) -> "Union":
        """The unions of some features."""
        fit, held = (half.each(lambda table: table[:, features]) for half in (self.fit, self.held))
        return Union(self.members[:, features], self.thresholds[features], self.sides[features], fit, held)

    def grown(self, step: "Union", where: Bool[np.ndarray, "f"]) -> "Union":
        """With the concept of a step in the unions of some features, and its cut."""
        return Union(
            self.members | step.members & where,
            np.where(where, step.thresholds, self.thresholds),
            np.where(where, step.sides, self.sides),
            self.fit.replaced(step.fit, where),
            self.held.replaced(step.held, where),
        )


@dataclass(frozen=True)
class Assignments:
    """Alone: the concept a feature is assigned to, or -1; mixed: whether it is assigned to its union instead."""

    single: Association
    union: Union
    start: Int[np.ndarray, "f"]
    alone: Int[np.ndarray, "f"]
    mixed: Bool[np.ndarray, "f"]
    thresholds: MatchingThresholds

    def assigned(self) -> Bool[np.ndarray, "c f"]:
        """Which concepts each feature is assigned to."""
        return (np.arange(len(self.union.members))[:, None] == self.alone) | self.union.members & self.mixed


def assign_concepts(
    codes: sparse.csr_array,
    concepts: Bool[np.ndarray, "n c"],
    fit: Bool[np.ndarray, "n"],
    thresholds: MatchingThresholds = DEFAULT,
) -> Assignments:
    """What each feature is assigned to, of concepts that are all judged."""
    found = associate(codes, concepts, fit, thresholds=thresholds)
    height, likely = found.fit.phi(), precise(found.fit, thresholds)
    start, features = height.argmax(0), np.arange(height.shape[1])
    union = _grow_unions(codes, concepts, fit, Union.of_one(found, start), sure(found.fit, thresholds), thresholds)
    proved = likely & precise(found.held, thresholds)
    first = proved[start, features]
    precise_union = (precise(union.fit, thresholds) & precise(union.held, thresholds))[0]
    mixed = ~first & (union.members.sum(0) > 1) & precise_union
    other = np.where(likely, height, -1).argmax(0)
    good = np.minimum(height, found.held.phi())[start, features] >= thresholds.good_phi
    alone = np.where(first | good, start, np.where(proved[other, features], other, -1))
    return Assignments(found, union, start, np.where(mixed, -1, alone), mixed, thresholds)


def _grow_unions(
    codes: sparse.csr_array,
    concepts: np.ndarray,
    fit: np.ndarray,
    union: Union,
    allowed: np.ndarray,
    thresholds: MatchingThresholds,
) -> Union:
    """The unions of all features that are sure of several concepts, a block of features at a time."""
    features, many = np.arange(allowed.shape[1]), np.flatnonzero(allowed.sum(0) > 1)
    for first in range(0, len(many), FEATURES_AT_ONCE):
        block = many[first : first + FEATURES_AT_ONCE]
        columns = sparse.csr_array(codes[:, block])
        grown = unite(columns, concepts, fit, union.of(block), allowed[:, block], thresholds)
        places = np.searchsorted(block, features).clip(max=len(block) - 1)
        union = union.grown(grown.of(places), np.isin(features, block))
    return union


def unite(
    codes: sparse.csr_array,
    concepts: Bool[np.ndarray, "n c"],
    fit: Bool[np.ndarray, "n"],
    union: Union,
    allowed: Bool[np.ndarray, "c f"],
    thresholds: MatchingThresholds = DEFAULT,
) -> Union:
    """Unions grown one concept at a time, all features together, while any grows."""
    inside = within(concepts[fit], concepts[fit], thresholds)
    nested = (inside | inside.T).astype(np.float32)
    for _ in range(thresholds.most_parts - 1):
        given = concepts.astype(np.float32) @ union.members > 0
        found = associate(codes, concepts, fit, given, thresholds)
        free = allowed & (nested @ union.members == 0)
        height = np.where(free & _better(found.fit, union.fit, thresholds), found.fit.phi(), -np.inf)
        helped = height.max(0) > -np.inf
        if not helped.any():
            break
        union = union.grown(Union.of_one(found, height.argmax(0)), helped)
        codes = sparse.csr_array(codes.multiply(helped))  # one that did not grow will not, and need not be sorted again
    return union


def sure(counts: Counts, thresholds: MatchingThresholds = DEFAULT) -> Bool[np.ndarray, "c f"]:
    """Whether a feature is right oftener than by luck."""
    return counts.phi() * counts.rows**0.5 >= thresholds.sure_z


def precise(counts: Counts, thresholds: MatchingThresholds = DEFAULT) -> Bool[np.ndarray, "c f"]:
    """Whether a feature is nearly always right when it says a concept, and not by luck."""
    return (counts.purity() >= thresholds.precise_purity) & sure(counts, thresholds)


def within(
    rows: Bool[np.ndarray, "n a"], of: Bool[np.ndarray, "n c"], thresholds: MatchingThresholds = DEFAULT
) -> Bool[np.ndarray, "a c"]:
    """Whether at least `nested_share` of the rows of one lie inside another; nothing lies inside anything."""
    amount = rows.sum(0)[:, None]
    return (rows.T.astype(np.float32) @ of.astype(np.float32) >= thresholds.nested_share * amount) & (amount > 0)


def _better(found: Counts, before: Counts, thresholds: MatchingThresholds) -> Bool[np.ndarray, "c f"]:
    share = np.minimum(found.added, found.true - found.added) >= thresholds.union_share * np.maximum(found.said, 1)
    phi_rise, purity_rise = found.phi() - before.phi(), found.purity() - before.purity()
    rise = np.where(precise(before, thresholds), phi_rise, purity_rise)
    return share & (rise >= thresholds.least_gain)


def judge_features(
    assignments: Assignments, numbers: Int[np.ndarray, "c"], fired: Bool[np.ndarray, "f"]
) -> Iterator[FeatureVerdict]:
    """The verdict on each feature, with the concepts' own numbers, of which some were left out."""
    alone, mixed, assigned = assignments.alone, assignments.mixed, assignments.assigned()
    near = Union.of_one(assignments.single, np.where(alone >= 0, alone, assignments.start))
    union = near.grown(assignments.union, mixed)
    ours = alone == np.arange(len(numbers))[:, None]
    matches = np.where(ours, assignments.single.fit.phi(), -np.inf).argmax(1)
    heights, purities = union.held.phi()[0], union.held.purity()[0]
    for j in range(len(fired)):
        verdict = "dead" if not fired[j] else "mixture" if mixed[j] else "spurious"
        if alone[j] >= 0:
            verdict = "match" if matches[alone[j]] == j else "duplicate"
        cut = float(union.thresholds[j]), int(union.sides[j])
        concepts = tuple(numbers[assigned[:, j]].tolist())
        yield FeatureVerdict(verdict, concepts, *cut, float(heights[j]), float(purities[j]))


def judge_concepts(
    codes: sparse.csr_array, concepts: Bool[np.ndarray, "n c"], fit: Bool[np.ndarray, "n"], assignments: Assignments
) -> Iterator[ConceptVerdict]:
    """In the order of the rules: one feature, several, several and narrower ones, one for several concepts, none."""
    height, measured = assignments.single.fit.phi(), assignments.single.held.phi()
    own, narrower = _kinds(concepts[fit], assignments)
    unions = _unions(codes, concepts, fit, assignments)
    columns, good = sparse.csc_array(codes), assignments.thresholds.good_phi
    for c in range(concepts.shape[1]):
        ranked = np.argsort(-height[c], kind="stable")  # so that of equal ones the better comes first
        mine, others = (ranked[kind[c, ranked]] for kind in (own, narrower))
        if len(mine) and measured[c, mine[0]] >= good:
            yield ConceptVerdict("recovered", (int(mine[0]),), float(measured[c, mine[0]]))
            continue
        parts = _parts(columns, concepts[:, c], fit, assignments, c, (mine, others))
        yield parts or _shared(height[c], measured[c], unions[c], assignments.union, good)


def _kinds(concepts: Bool[np.ndarray, "n c"], assignments: Assignments) -> tuple[np.ndarray, np.ndarray]:
    """The features assigned alone to each concept (or nearly the same), and those precise for it but narrower."""
    inside = within(concepts, concepts, assignments.thresholds)
    own = (inside & inside.T)[:, assignments.alone] & (assignments.alone >= 0)
    rows = concepts.astype(np.float32) @ assignments.assigned() > 0
    narrower = within(rows, concepts, assignments.thresholds).T
    return own, narrower & precise(assignments.single.fit, assignments.thresholds) & ~own


def _unions(
    codes: sparse.csr_array, concepts: np.ndarray, fit: np.ndarray, assignments: Assignments
) -> Bool[np.ndarray, "c f"]:
    """Where a concept is merged in a feature's union: the union is said well, and the concept with it."""
    union, good = assignments.union, assignments.thresholds.good_phi
    held = fires_beyond(codes, union.thresholds, union.sides)[~fit]
    true = held.T @ concepts[~fit].astype(np.float32)
    recalled = true.T / concepts[~fit].sum(0)[:, None] >= good
    return union.members & (union.members.sum(0) > 1) & recalled & (union.held.phi() >= good)


def _parts(
    codes: sparse.csc_array,
    on: np.ndarray,
    fit: np.ndarray,
    assignments: Assignments,
    concept: int,
    kinds: tuple[np.ndarray, np.ndarray],
) -> ConceptVerdict | None:
    """Whether features say a concept together: its own, and if these are too few, those of narrower ones."""
    chosen: list[int] = []
    covered = np.zeros(len(on), bool)
    single, thresholds = assignments.single, assignments.thresholds
    for name, features in zip(("split", "absorbed"), kinds, strict=True):
        cut = single.thresholds[concept, features], single.sides[concept, features]
        said = sparse.csc_array(fires_beyond(sparse.csr_array(codes[:, features]), *cut))
        more = add_features(sparse.csr_array(said[fit].T), on[fit], covered[fit], thresholds)
        chosen += features[more].tolist()
        covered = covered | np.asarray(said[:, more].sum(1) > 0)
        reached = union_phi(covered[~fit], on[~fit])
        if reached >= thresholds.good_phi:
            return ConceptVerdict(name, tuple(sorted(chosen)), reached)
    return None


def _shared(height: np.ndarray, measured: np.ndarray, unions: np.ndarray, union: Union, good: float) -> ConceptVerdict:
    """Merged with others in a feature, or missed."""
    best = int(height.argmax())
    if unions.any():
        chosen = int(np.where(unions, union.fit.phi()[0], -np.inf).argmax())
        return ConceptVerdict("merged", (chosen,), float(union.held.phi()[0, chosen]))
    return ConceptVerdict("merged" if measured[best] >= good else "missed", (best,), float(measured[best]))


def _shares(verdicts: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    total = len(verdicts) or float("nan")
    return {name: verdicts.count(name) / total for name in names}
