"""Compare settings at equal L0: interpolate each one's path, and never beyond its ends.

A path is what one seed scores at several strengths of sparsity (an L1 weight, a k): points (L0, score), joined by
straight lines over log L0. Two settings are compared where the paths of all their shared seeds are:

    difference of a seed = mean over log L0 in [low, high] of (ours - reference)      low = the largest first L0 of any,
                                                                                      high = the smallest last L0

then paired over seeds, with an interval. Where no L0 is shared there is no comparison, only a reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unbraid.errors import Refusal
from unbraid.statistics import Difference, estimate


@dataclass(frozen=True)
class Path:
    """Scores by rising L0; points of one L0 are one point, their mean."""

    l0: tuple[float, ...]
    score: tuple[float, ...]

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> "Path":
        """The path through points (L0, score), in any order; those that are not finite or fire nothing are left out."""
        known = [(float(l0), float(score)) for l0, score in points if l0 > 0 and np.isfinite([l0, score]).all()]
        if not known:
            raise Refusal(f"none of {len(points)} points is one of a path; accepted: finite scores at an L0 above 0")
        l0, first = np.unique([l0 for l0, _ in known], return_inverse=True)
        score = np.bincount(first, [score for _, score in known]) / np.bincount(first)
        return cls(tuple(l0.tolist()), tuple(score.tolist()))

    def at(self, l0: float) -> float:
        """The score at this L0; NaN beyond the ends."""
        if not self.l0[0] <= l0 <= self.l0[-1]:
            return float("nan")
        return float(np.interp(np.log(l0), np.log(self.l0), self.score))

    def mean(self, low: float, high: float) -> float:
        """The mean over log L0 between two L0 that are on the path."""
        inner = [l0 for l0 in self.l0 if low < l0 < high]
        knots = np.array([low, *inner, high])
        scores = np.array([self.at(l0) for l0 in knots])
        if low == high:
            return float(scores[0])
        widths = np.diff(np.log(knots))
        return float((widths * (scores[:-1] + scores[1:]) / 2).sum() / widths.sum())


@dataclass(frozen=True)
class MatchedDifference:
    """How two settings differ at equal L0, between `low` and `high`; or why that cannot be said."""

    difference: Difference | None
    low: float
    high: float
    reason: str = ""

    @property
    def verdict(self) -> str:
        return "undecided" if self.difference is None else self.difference.verdict


Paths = Mapping[str, Path]
"""A setting's path by seed (or by any replicate)."""


def compare(ours: Paths, reference: Paths, at: float | None = None) -> MatchedDifference:
    """Ours minus reference over all L0 that the paths of every shared seed have; or at one L0 that they all have."""
    shared = sorted(ours.keys() & reference.keys())
    if not shared:
        return MatchedDifference(None, np.nan, np.nan, "the two settings share no seed")
    (first, last), (start, end) = (_range([paths[seed] for seed in shared]) for paths in (ours, reference))
    low, high = max(first, start), min(last, end)
    asked = (low, high) if at is None else (at, at)
    if low > high or not low <= asked[0] <= asked[1] <= high:
        every = "no L0 is on every path" if at is None or low > high else f"L0 {at:.4g} is not on every path"
        return MatchedDifference(None, *asked, f"{every}: {_span(first, last)} against {_span(start, end)}")
    each = [ours[seed].mean(*asked) - reference[seed].mean(*asked) for seed in shared]
    return MatchedDifference(Difference(estimate(each), len(each)), *asked)


def _range(paths: Sequence[Path]) -> tuple[float, float]:
    """The L0 that all these paths have; the first above the last where there is none."""
    return max(path.l0[0] for path in paths), min(path.l0[-1] for path in paths)


def _span(first: float, last: float) -> str:
    return f"{first:.4g} to {last:.4g}" if first <= last else "none in common among the seeds"
