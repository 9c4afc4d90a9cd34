"""What each feature stands for: a concept, or a union of a few, chosen on one half of the rows and proved on the other.

sure     φ·√n ≥ 3: a feature that fires twice is soon right twice. Among n rows that are independent chance gives φ·√n
         a spread of 1; among tokens of stories, where much lasts for a story, a larger one
precise  sure, and purity ≥ .7
start    the concept of the largest φ
union    the start, and then one by one the concept of the largest φ(union) among those it is sure of, if neither this
         nor one in the union has ≥ .9 of its rows in the other; if of the rows said it and the union before it have a
         tenth each; and if φ(union) rises by .01 or, as long as the union is not precise, its purity does. At most 4;
         the cut is chosen anew for each union.
alone    the start if precise for it; otherwise, unless precise for a union of two or more, the start if φ ≥ .75, or the
         concept of the largest φ of those it is precise for

Why .75: half of a concept has φ = √½ with it, and so has a feature that says two equal concepts with either.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from unbraid.axes import Bool, Float, Int
from unbraid.metrics.association import Association, Counts, associate

GOOD, PRECISE, MOST = 0.75, 0.7, 4
SURE, SHARE, INSIDE, GAIN = 3, 0.1, 0.9, 0.01
BLOCK = 1024
"""Features whose unions grow together, for the sake of memory."""


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
        columns = np.arange(len(concept))
        cut = found.thresholds[concept, columns], found.sides[concept, columns]
        counts = (half.each(lambda table: table[concept, columns][None]) for half in (found.fit, found.held))
        return cls(np.arange(len(found.thresholds))[:, None] == concept, *cut, *counts)

    def of(self, features: Int[np.ndarray, "g"]) -> "Union":
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
class Readings:
    """Alone: the concept a feature stands for, or -1; mixed: whether it stands for its union instead."""

    single: Association
    union: Union
    start: Int[np.ndarray, "f"]
    alone: Int[np.ndarray, "f"]
    mixed: Bool[np.ndarray, "f"]

    def stands(self) -> Bool[np.ndarray, "c f"]:
        """The concepts each feature stands for."""
        return (np.arange(len(self.union.members))[:, None] == self.alone) | self.union.members & self.mixed


def read(codes: sparse.csr_array, concepts: Bool[np.ndarray, "n c"], fit: Bool[np.ndarray, "n"]) -> Readings:
    """Of concepts that are all judged."""
    found = associate(codes, concepts, fit)
    height, likely = found.fit.phi(), precise(found.fit)
    start, features = height.argmax(0), np.arange(height.shape[1])
    union = Union.of_one(found, start)
    many = np.flatnonzero(sure(found.fit).sum(0) > 1)
    for first in range(0, len(many), BLOCK):
        where = many[first : first + BLOCK]
        part = unite(sparse.csr_array(codes[:, where]), concepts, fit, union.of(where), sure(found.fit)[:, where])
        union = union.grown(
            part.of(np.searchsorted(where, features).clip(max=len(where) - 1)), np.isin(features, where)
        )
    proved = likely & precise(found.held)
    first = proved[start, features]
    mixed = ~first & (union.members.sum(0) > 1) & (precise(union.fit) & precise(union.held))[0]
    other = np.where(likely, height, -1).argmax(0)
    good = np.minimum(height, found.held.phi())[start, features] >= GOOD
    alone = np.where(first | good, start, np.where(proved[other, features], other, -1))
    return Readings(found, union, start, np.where(mixed, -1, alone), mixed)


def unite(
    codes: sparse.csr_array,
    concepts: Bool[np.ndarray, "n c"],
    fit: Bool[np.ndarray, "n"],
    union: Union,
    allowed: Bool[np.ndarray, "c f"],
) -> Union:
    """Grown one by one, all features together, while any grows."""
    inside = within(concepts[fit], concepts[fit])
    nested = (inside | inside.T).astype(np.float32)
    for _ in range(MOST - 1):
        found = associate(codes, concepts, fit, concepts.astype(np.float32) @ union.members > 0)
        free = allowed & (nested @ union.members == 0)
        height = np.where(free & _better(found.fit, union.fit), found.fit.phi(), -np.inf)
        helped = height.max(0) > -np.inf
        if not helped.any():
            break
        union = union.grown(Union.of_one(found, height.argmax(0)), helped)
        codes = sparse.csr_array(codes.multiply(helped))  # one that did not grow will not, and need not be sorted again
    return union


def sure(counts: Counts) -> Bool[np.ndarray, "c f"]:
    """Whether it is right oftener than by luck."""
    return counts.phi() * counts.rows**0.5 >= SURE


def precise(counts: Counts) -> Bool[np.ndarray, "c f"]:
    """Whether it is nearly always right when it says a concept, and not by luck."""
    return (counts.purity() >= PRECISE) & sure(counts)


def within(rows: Bool[np.ndarray, "n a"], of: Bool[np.ndarray, "n c"]) -> Bool[np.ndarray, "a c"]:
    """Whether at least nine tenths of the rows of one lie inside another; nothing lies inside anything."""
    amount = rows.sum(0)[:, None]
    return (rows.T.astype(np.float32) @ of.astype(np.float32) >= INSIDE * amount) & (amount > 0)


def _better(found: Counts, before: Counts) -> Bool[np.ndarray, "c f"]:
    share = np.minimum(found.added, found.true - found.added) >= SHARE * np.maximum(found.said, 1)
    rise = np.where(precise(before), found.phi() - before.phi(), found.purity() - before.purity())
    return share & (rise >= GAIN)
