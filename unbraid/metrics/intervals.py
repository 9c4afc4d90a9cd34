"""Error bars and comparisons over seeds.

The interval is a bootstrap percentile interval of the mean, widened for few seeds (Hesterberg 2015): instead of the
2.5 % tails it takes Φ(-√(n/(n-1)) · t), t the 97.5 % point of Student's t with n-1 degrees of freedom. From
normal data it covers the truth 92 % of the time with five seeds and 94 % with ten (plain percentile: 84 % and 89 %),
but only 77 % with three: with fewer than five, treat it as a lower bound of the doubt.

**At equal L0**: interpolate each setting's path, and never beyond its ends.

A path is what one seed scores at several strengths of sparsity (an L1 weight, a k): points (L0, score), joined by
straight lines over log L0. Two settings are compared where the paths of all their shared seeds are:

    difference of a seed = mean over log L0 in [low, high] of (ours - reference)      low = the largest first L0 of any,
                                                                                      high = the smallest last L0

then paired over seeds, with an interval. Where no L0 is shared there is no comparison, only a reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy.special import ndtr, stdtrit

from unbraid.errors import UserError

RESAMPLES = 10_000
FEWEST_PAIRS = 5
"""Below this no difference is called: an interval from n values cannot cover more than 1 - 2^(1-n) of the time."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval; no interval from a single seed."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Difference:
    """How one setting differs from another, paired by seed."""

    estimate: Estimate
    pairs: int
    values: tuple[float, ...] = ()
    """Of the pairs, where they are known."""

    @property
    def verdict(self) -> str:
        """`higher` or `lower` where the interval leaves out 0 and there are enough pairs; else `undecided`."""
        if self.estimate.interval is None or self.pairs < FEWEST_PAIRS:
            return "undecided"
        low, high = self.estimate.interval
        return "higher" if low > 0 else "lower" if high < 0 else "undecided"


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of these values, one a seed, and its interval."""
    n, kept = len(values), np.asarray(values, dtype=float)
    if n < 2 or not np.isfinite(kept).all():
        return Estimate(float(kept.mean()) if n else float("nan"), None)
    tail, draws = _resampling(n)
    low, high = np.quantile(kept[draws].mean(1), [tail, 1 - tail])
    return Estimate(float(kept.mean()), (float(low), float(high)))


@lru_cache(maxsize=8)
def _resampling(n: int) -> tuple[float, np.ndarray]:
    """The tail that is cut off on either side, and which values make up each resample; a run asks hundreds of times."""
    tail = ndtr(-np.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.975))
    return float(tail), np.random.default_rng(0).integers(0, n, (RESAMPLES, n))


def paired_difference(ours: Mapping[str, float], reference: Mapping[str, float]) -> Difference:
    """Mean of ours minus reference over the replicates both have."""
    return _difference([ours[key] - reference[key] for key in sorted(ours.keys() & reference.keys())])


def _difference(values: Sequence[float]) -> Difference:
    return Difference(estimate(values), len(values), tuple(values))


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
            raise UserError(f"none of {len(points)} points is one of a path; accepted: finite scores at an L0 above 0")
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
        """`higher` or `lower` where the interval leaves out 0 and there are enough pairs; else `undecided`."""
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
    return MatchedDifference(_difference(each), *asked)


def shared_l0(cases: Mapping[str, Paths]) -> float | None:
    """The L0 that most cases have on the paths of all their seeds, nearest the middle of the first case's."""
    spans = [_range(list(paths.values())) for paths in cases.values() if paths]
    spans = [(low, high) for low, high in spans if low <= high]
    if not spans:
        return None
    low, high = spans[0]
    middle, ends = (low * high) ** 0.5, sorted({min(max(end, low), high) for span in spans for end in span})
    candidates = [middle, *ends, *((one * two) ** 0.5 for one, two in pairwise(ends))]
    reached = {l0: sum(first <= l0 <= last for first, last in spans) for l0 in candidates}
    return max(candidates, key=lambda l0: (reached[l0], -abs(np.log(l0 / middle))))


def _range(paths: Sequence[Path]) -> tuple[float, float]:
    """The L0 that all these paths have; the first above the last where there is none."""
    return max(path.l0[0] for path in paths), min(path.l0[-1] for path in paths)


def _span(first: float, last: float) -> str:
    return f"{first:.4g} to {last:.4g}" if first <= last else "none in common among the seeds"
