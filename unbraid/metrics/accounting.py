"""What became of every concept, and what every feature is: one verdict each, and shares that add up to one.

A concept, the first that applies (thresholds and choices from the rows to fit on, φ from the others; see `readings` for
what a feature stands for, and the constants):

recovered  of the features that stand for it alone the best has φ ≥ GOOD
split      the OR of 2 to MOST features that stand for it alone has φ ≥ GOOD
absorbed   so has the OR of these, if any, and of 1 to MOST that are precise for it but stand for something narrower (a
           concept or union of which ≥ .9 lies inside): the general feature is silent where a more specific one fires
merged     a feature's union of 2 to MOST concepts has it in it, with φ(union) ≥ GOOD and recall of this one ≥ GOOD;
           or its best feature has φ ≥ GOOD, but stands for another concept
missed     none of these
unjudged   on, or off, in fewer than 5 rows of either half: left out of the shares, and of all that is said of features

A feature, the first that applies:

dead       never fires on any row
match      stands for a concept alone, with the largest φ of all that do
duplicate  stands alone for a concept that has another match: says the same, or a part of it, again
mixture    stands for a union of 2 to MOST concepts
spurious   none of these

Concepts that lie inside each other both ways (≥ .9) are one and the same: what stands for one stands for the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from unbraid.axes import Bool
from unbraid.metrics.association import FEWEST
from unbraid.metrics.readings import read
from unbraid.metrics.verdicts import ConceptVerdict, FeatureVerdict, judge_concepts, judge_features

CONCEPTS = ("recovered", "split", "absorbed", "merged", "missed")
FEATURES = ("match", "duplicate", "mixture", "spurious", "dead")
UNJUDGED = "unjudged"


@dataclass(frozen=True)
class Account:
    """One verdict for every concept and one for every feature, in their order."""

    concepts: tuple[ConceptVerdict, ...]
    features: tuple[FeatureVerdict, ...]

    def concept_shares(self) -> dict[str, float]:
        """Of the concepts that are judged; NaN where none is."""
        return _shares([one.verdict for one in self.concepts if one.verdict != UNJUDGED], CONCEPTS)

    def feature_shares(self) -> dict[str, float]:
        return _shares([one.verdict for one in self.features], FEATURES)


def account(codes: sparse.csr_array, concepts: Bool[np.ndarray, "n c"], fit: Bool[np.ndarray, "n"]) -> Account:
    """Everything is chosen on the rows `fit` and measured on the others."""
    fewest = [np.minimum(concepts[part].sum(0), (~concepts[part]).sum(0)) for part in (fit, ~fit)]
    kept = np.flatnonzero(np.minimum(*fewest) >= FEWEST)
    fired = np.asarray(codes.astype(bool).sum(0)) > 0
    told = [ConceptVerdict(UNJUDGED, (), float("nan"))] * concepts.shape[1]
    if not len(kept):
        unread = (FeatureVerdict("spurious" if one else "dead", (), float("inf"), 1, 0.0, 0.0) for one in fired)
        return Account(tuple(told), tuple(unread))
    readings = read(codes, concepts[:, kept], fit)
    for number, verdict in zip(kept.tolist(), judge_concepts(codes, concepts[:, kept], fit, readings), strict=True):
        told[number] = verdict
    return Account(tuple(told), tuple(judge_features(readings, kept, fired)))


def _shares(verdicts: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    total = len(verdicts) or float("nan")
    return {name: verdicts.count(name) / total for name in names}
