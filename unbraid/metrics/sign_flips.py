"""The sign-flip permutation test of a paired difference, and how many replicates a study needs for it.

If a change does nothing, each replicate's difference could as well have had the other sign. The p-value is the share of
all 2ⁿ ways to sign the n differences whose mean is at least as far from 0 as the one that was measured:

    p = #{s ∈ {-1, 1}ⁿ : |Σ s_i d_i| ≥ |Σ d_i|} / 2ⁿ

It is exact for any law that is symmetric about 0, two-sided, and never below 2^(1-n): with five pairs p is at least
.0625, so five can never decide. Up to `MOST_EXACT` differences all signs are tried; of more a fixed sample is, and the
measured one counts among them (Phipson and Smyth 2010).

Several tests of one claim are corrected by Holm's rule: the j-th smallest of k p-values is multiplied by k - j + 1.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

LEVEL = 0.05
"""The share of claims that may be decided, one way or the other, where there is nothing."""
FEWEST_REPLICATES = 8
"""What every claim has at least; with eight, effects of 1.3 standard deviations are found four times in five."""
MOST_EXACT = 16
DRAWS = 20_000

Combine = Literal["all", "any"]
"""Whether a claim holds if all its parts do, or if any does."""


def sign_flip_p(differences: Sequence[float]) -> float:
    """The two-sided p-value of "the mean is 0, and positive and negative differences are equally likely".

    Parameters
    ----------
    differences : sequence of float
        One a replicate, in any unit.

    Returns
    -------
    float
        Between 2^(1-n) and 1; 1 where there are none, or all are 0; NaN where one is not finite.

    Examples
    --------
    >>> sign_flip_p([0.3, 0.1, 0.2, 0.4, 0.1, 0.2, 0.3, 0.2])  # eight of one sign: 2 of 256 are as far from 0
    0.0078125
    >>> sign_flip_p([1.0, 2.0, 3.0])
    0.25
    """
    values = np.asarray(differences, dtype=float)
    if not np.isfinite(values).all():
        return math.nan
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0:
        return 1.0
    values = values / largest
    n = len(values)
    sums = np.abs(_signs(n) @ values)
    as_far = int((sums >= abs(values.sum()) - 1e-12 * n).sum())  # ties count, whatever rounding makes of them
    return as_far / len(sums) if n <= MOST_EXACT else (as_far + 1) / (len(sums) + 1)


@lru_cache(maxsize=8)
def _signs(n: int) -> np.ndarray:
    """All ways to sign n numbers, up to a common sign, which changes no distance from 0; or a fixed sample of them."""
    if n > MOST_EXACT:
        return np.random.default_rng(0).choice([-1.0, 1.0], (DRAWS, n))
    codes = np.arange(1 << max(n - 1, 0))[:, None]
    return 1.0 - 2.0 * ((codes >> np.arange(n)) & 1)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in their order: at most `LEVEL` of families of nulls have one at or below it.

    Parameters
    ----------
    p : sequence of float
        One a test.

    Returns
    -------
    list of float
        At most 1 each.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda index: p[index])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = largest
    return adjusted


def least_replicates(parts: int = 1) -> int:
    """How many replicates a claim of so many parts needs before its test can decide: 2^(1-n) ≤ LEVEL / parts.

    Examples
    --------
    >>> least_replicates(1), least_replicates(6), least_replicates(7)
    (8, 8, 9)
    """
    return max(FEWEST_REPLICATES, math.ceil(1 + math.log2(parts / LEVEL)))


def replicates_for(
    effect: float, deviation: float, parts: int = 1, combine: Combine = "all", power: float = 0.8
) -> int:
    """How many replicates a study needs to find an effect of this size.

    Of a claim that needs all its parts each part must be found with power^(1/parts) at `LEVEL`; of one that needs any,
    a single part with `power` at LEVEL / parts. The power is that of Student's t test, which the sign-flip test
    approaches, at the largest level at or below it that n replicates can have.

    Parameters
    ----------
    effect : float
        The effect to be found, in any unit: as a rule the smallest effect of interest, or what a pilot showed.
    deviation : float
        The standard deviation of a replicate's paired difference, in the same unit, from a pilot on other seeds.
    parts : int
        Parts of the claim.
    combine : "all" or "any"
        How they combine.
    power : float
        How often the claim should be found to hold where it does.

    Returns
    -------
    int
        At least `least_replicates(parts)`.

    Examples
    --------
    >>> replicates_for(effect=0.02, deviation=0.02)
    11
    >>> replicates_for(effect=0.05, deviation=0.02)
    8
    """
    from scipy import stats  # takes half a second, and only who plans a study asks

    level = LEVEL if combine == "all" else LEVEL / parts
    wanted = power ** (1 / parts) if combine == "all" else power
    for n in range(least_replicates(parts), 10_000):
        possible = math.floor(level * 2 ** min(n - 1, 60)) / 2 ** min(n - 1, 60)
        reached = stats.nct.sf(stats.t.isf(possible / 2, n - 1), n - 1, math.sqrt(n) * abs(effect) / deviation)
        if reached >= wanted:
            return n
    raise ValueError(f"an effect of {effect:g} beside a deviation of {deviation:g} needs more than 10,000 replicates")
