"""How much the hand-set thresholds of concept–feature matching matter.

Where features are clear none does. Where they are graded from good to bad two do: where φ is called good, and
where purity is called precise. The others change at most one verdict.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy import sparse

from unbraid.metrics.matching.thresholds import DEFAULT, MatchingThresholds
from unbraid.metrics.matching.verdicts import ConceptMatching, match_concepts

ROWS, VALUES = 6000, 8
MOVED = {
    "good_phi": (0.6, 0.9, 0.35),
    "precise_purity": (0.5, 0.9, 0.2),
    "sure_z": (2.0, 4.5, 0.06),
    "union_share": (0.05, 0.15, 0.06),
    "nested_share": (0.72, 0.99, 0.06),
    "least_gain": (0.005, 0.015, 0.06),
    "most_parts": (3, 6, 0.06),
    "candidates": (32, 96, 0.06),
    "fewest_rows": (2, 20, 0.06),
}
"""Each moved down and up by 20 to 50 % (a share towards 1 as far as it can be), and the largest share of verdicts that
change on graded features."""


def planted(graded: bool) -> tuple[sparse.csr_array, np.ndarray, np.ndarray]:
    """Twenty concepts, and features that recover, split, absorb, merge and miss them: each silent in 8 % of its rows
    or, graded, in 0 to 60 %, so that every φ and purity from good to bad occurs."""
    rng = np.random.default_rng(3)
    first, second = rng.integers(0, VALUES, ROWS), rng.integers(0, VALUES, ROWS)
    third = rng.integers(0, 4, ROWS)
    general = second < 3
    concepts = np.column_stack([*(first == v for v in range(VALUES)), *(second == v for v in range(VALUES))])
    concepts = np.column_stack([concepts, *(third == v for v in range(3)), general])
    half = rng.random(ROWS) < 0.5
    on = concepts.T
    columns = [on[0], on[1], on[2], on[2] & half, on[3] & half, on[3] & ~half, on[4] | on[5]]
    columns += [on[8], on[9], on[19] & ~on[8] & ~on[9], on[11], on[12] | on[13], on[16], on[17]]
    columns += [rng.random(ROWS) < share for share in (0.02, 0.1, 0.3, 0.5)] + [np.zeros(ROWS, bool)]
    codes = np.stack(columns, 1)
    silent = rng.uniform(0, 0.6, codes.shape[1]) if graded else 0.08
    extra = rng.uniform(0, 0.03, codes.shape[1]) if graded else 0.002
    codes = (codes & (rng.random(codes.shape) >= silent)) | ((rng.random(codes.shape) < extra) & codes.any(0))
    return sparse.csr_array(codes * (1 + rng.random(codes.shape))), concepts, rng.random(ROWS) < 0.5


def verdicts(found: ConceptMatching) -> tuple[list[str], list[str]]:
    return [concept.verdict for concept in found.concepts], [feature.verdict for feature in found.features]


def changed(ours: list[str], theirs: list[str]) -> float:
    return sum(a != b for a, b in zip(ours, theirs, strict=True)) / len(ours)


def test_the_planted_case_has_every_verdict():
    concepts, features = verdicts(match_concepts(*planted(graded=False)))
    assert set(concepts) == {"recovered", "split", "absorbed", "merged", "missed"}
    assert set(features) == {"match", "duplicate", "mixture", "spurious", "dead"}


def test_every_threshold_is_moved():
    assert {field.name for field in fields(MatchingThresholds)} == set(MOVED)
    for name, (low, high, _) in MOVED.items():
        assert low < getattr(DEFAULT, name) < high


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, moved in MOVED.items() for value in moved[:2]])
def test_moving_a_threshold_changes_few_verdicts(name: str, value: float):
    for graded, most in ((False, 0.06), (True, MOVED[name][2])):
        data = planted(graded)
        before, after = (verdicts(match_concepts(*data, of)) for of in (DEFAULT, replace(DEFAULT, **{name: value})))
        concepts, features = (changed(ours, theirs) for ours, theirs in zip(before, after, strict=True))
        print(f"{name} = {value}, graded {graded}: {concepts:.0%} of concepts, {features:.0%} of features change")
        assert max(concepts, features) <= most
