"""Error bars and comparisons over seeds.

The interval is a bootstrap percentile interval of the mean, widened for few seeds (Hesterberg 2015): instead of the
2.5 % tails it takes the tails Φ(-√(n/(n-1)) · t), t the 97.5 % point of Student's t with n-1 degrees of freedom. With
five seeds the plain percentile interval covers the truth about 82 % of the time; this one comes much closer to 95 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtrit

RESAMPLES = 10_000


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

    @property
    def verdict(self) -> str:
        if self.estimate.interval is None:
            return "undecided"
        low, high = self.estimate.interval
        return "higher" if low > 0 else "lower" if high < 0 else "undecided"


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of these values, one a seed, and its interval."""
    n, kept = len(values), np.asarray(values, dtype=float)
    if n < 2 or not np.isfinite(kept).all():
        return Estimate(float(kept.mean()) if n else float("nan"), None)
    tail = ndtr(-np.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.975))
    draws = np.random.default_rng(0).integers(0, n, (RESAMPLES, n))
    low, high = np.quantile(kept[draws].mean(1), [tail, 1 - tail])
    return Estimate(float(kept.mean()), (float(low), float(high)))


def paired_difference(ours: Mapping[str, float], reference: Mapping[str, float]) -> Difference:
    """Mean of ours minus reference over the replicates both have."""
    shared = sorted(ours.keys() & reference.keys())
    return Difference(estimate([ours[key] - reference[key] for key in shared]), len(shared))
