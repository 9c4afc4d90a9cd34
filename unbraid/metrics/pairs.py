"""Whether the same pairs of features are selected again: at another step, or in a dictionary from another seed.

overlap = |A ∩ B| / |A ∪ B|                                                     (Jaccard)
chance  = Σ_i P(i) · i / (|A| + |B| - i),  i pairs in common of P possible: P(i) is hypergeometric

Between seeds, features are first matched one to one by the cosines of their directions; pairs of features without a
match are left out, of the pairs and of the possible ones.
"""

from itertools import pairwise

import numpy as np

from unbraid.axes import Float, Int, Tensor
from unbraid.metrics.recovery import cosines, match

Pairs = Int[np.ndarray, "_ 2"]


def overlap(ours: Pairs, theirs: Pairs) -> float:
    """The share of the pairs that both selected, of those that either did; NaN where neither selected any."""
    mine, other = _unordered(ours), _unordered(theirs)
    either = len(mine | other)
    return len(mine & other) / either if either else float("nan")


def expected_overlap(ours: int, theirs: int, possible: int) -> float:
    """What so many pairs chosen at random out of the possible ones overlap on average."""
    from scipy.stats import hypergeom  # takes half a second

    if max(ours, theirs) == 0:
        return float("nan")
    low, high = max(0, ours + theirs - possible), min(ours, theirs)
    middle = ours * theirs / possible
    beyond = 12 * (middle**0.5 + 1)  # twelve standard deviations or more: there is nothing left to add
    shared = np.arange(max(low, int(middle - beyond)), min(high, int(middle + beyond)) + 1)
    return float((hypergeom.pmf(shared, possible, ours, theirs) * shared / (ours + theirs - shared)).sum())


def overlaps(steps: list[Pairs], features: int) -> tuple[Float[np.ndarray, "c"], Float[np.ndarray, "c"]]:
    """Each step's overlap with the step before it, and its chance."""
    possible = features * (features - 1) // 2
    neighbours = list(pairwise(steps))
    chance = [expected_overlap(len(_unordered(a)), len(_unordered(b)), possible) for a, b in neighbours]
    return np.array([overlap(a, b) for a, b in neighbours], float), np.array(chance, float)


def overlap_between(
    ours: Pairs, theirs: Pairs, directions: Float[Tensor, "f d"], others: Float[Tensor, "g d"]
) -> tuple[float, float]:
    """The overlap of pairs in two dictionaries, features matched by direction; and its chance."""
    matched = match(cosines(directions, others[None]))[0].numpy()
    mine = matched[ours]
    mine = mine[(mine >= 0).all(1)]
    known = np.isin(np.arange(len(others)), matched)
    other = theirs[known[theirs].all(1)]
    possible = int(known.sum()) * (int(known.sum()) - 1) // 2
    chance = expected_overlap(len(_unordered(mine)), len(_unordered(other)), possible)
    return overlap(mine, other), chance


def _unordered(pairs: Pairs) -> set[tuple[int, int]]:
    """A pair is the same both ways round, and counts once; a feature with itself is no pair."""
    ordered = np.sort(pairs, axis=1).tolist()
    return {(first, second) for first, second in ordered if first != second}
