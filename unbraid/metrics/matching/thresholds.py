"""The hand-set thresholds of concept–feature matching, each with its reason.

How much they matter is measured in `tests/metrics/test_matching_thresholds.py`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class MatchingThresholds:
    """Where concept–feature matching draws its lines."""

    good_phi: float = 0.75
    """φ from which a concept is told well: half of a concept has φ = √½ ≈ .71, and so has a feature for two alike."""
    precise_purity: float = 0.7
    """Purity from which a feature is precise: it is right at least this far from the base rate towards always."""
    sure_z: float = 3.0
    """φ·√n from which luck is ruled out: among n independent rows it has a standard deviation of 1."""
    union_share: float = 0.1
    """Each side of a union has at least this share of the rows told: less is an accident of overlap."""
    nested_share: float = 0.9
    """A concept with this share of its rows in another lies inside it: the rest is allowed for as noise."""
    least_gain: float = 0.01
    """What φ (or purity) must rise by for one more concept or feature: about what luck gives in 10,000 rows."""
    most_parts: int = 4
    """Concepts in a union, and features that tell a concept together: more would let random features add up."""
    candidates: int = 64
    """Features tried for k-feature recovery, the best alone first: for speed, far more than are ever chosen."""
    fewest_rows: int = 5
    """A concept on, or off, in fewer rows of either half is not judged: its φ would be luck."""


DEFAULT = MatchingThresholds()
