"""How much each feature says of each factor, and whether one feature says it alone, and of one factor alone.

I[f, k]    = mutual information (nats) of feature f, in bins, with the values of factor k, over the rows that have one
MIG        = mean over factors of (largest I[:, k] - second largest) / H(k)                         (Chen et al. 2018)
modularity = mean over features of 1 - Σ_{k not best} I[f, k]² / (I[f, best]² (factors - 1))  (Ridgeway & Mozer 2018)

Bins: not to fire is a bin of its own; what fires is in bins of equal width, from the feature's least to its largest
value that is not 0. disentanglement_lib cuts the whole range, zeros and all: there faint firing falls into one bin with
silence (on a code that is never 0 both are the same). All is counted at the cost of what fired.

Modularity is over the features that say enough of some factor. The published mean is over all, those that say exactly
nothing counting 0: it falls with every dead feature, and in an overcomplete code most others say only what a sample
pretends, which makes it .6 to .7 whatever the code, and the same for shuffled factors. `accident` bounds what they say.

A factor with one value has H = 0: its column is NaN, and it is left out. MIG of fewer than two features, modularity of
fewer than two factors or of no feature that says enough, and either of no factor are NaN.
"""

from collections.abc import Mapping

import numpy as np
from scipy import sparse
from scipy.special import xlogy

from unbraid.axes import Float, Int
from unbraid.metrics.prediction import size

BINS, ROUNDING, RARE = 20, 1e-12, 1e-6


def mutual_information(
    codes: sparse.csr_array, factors: Mapping[str, Int[np.ndarray, "n"]], bins: int = BINS
) -> Float[np.ndarray, "f k"]:
    """In nats; rows where a factor is below 0 are left out for it, after the bins are made from all."""
    width = size(codes)[1]
    row, feature, place = _binned(codes, bins)
    table = np.full((width, len(factors)), np.nan)
    for k, values in enumerate(factors.values()):
        of_value = np.bincount(values[values >= 0])
        if (of_value > 0).sum() > 1:
            known = values[row] >= 0
            which = (feature[known] * bins + place[known]) * len(of_value) + values[row[known]]
            counts = np.bincount(which, minlength=width * bins * len(of_value))
            table[:, k] = _information(counts.reshape(width, bins, len(of_value)), of_value)
    return table


def entropies(factors: Mapping[str, Int[np.ndarray, "n"]]) -> Float[np.ndarray, "k"]:
    """Of the values of each factor, in nats, over the rows where it has one; 0 if it has none."""
    from scipy.stats import entropy

    counts = [np.bincount(values[values >= 0], minlength=1) for values in factors.values()]
    return np.array([entropy(count) if count.sum() else 0.0 for count in counts], dtype=float)


def mig(information: Float[np.ndarray, "f k"], entropy: Float[np.ndarray, "k"]) -> float:
    """From the tables of the two functions above."""
    told = ~np.isnan(information).any(0) & (entropy > 0)
    if information.shape[0] < 2 or not told.any():
        return np.nan
    second, first = np.sort(information[:, told], axis=0)[-2:]
    return float(((first - second) / entropy[told]).mean())


def accident(factors: Mapping[str, Int[np.ndarray, "n"]], bins: int = BINS) -> Float[np.ndarray, "k"]:
    """What a feature that fills all bins and knows nothing says once in a million: χ² / 2 rows (a G-test)."""
    from scipy.stats import chi2

    counts = [np.unique(values[values >= 0], return_counts=True)[1] for values in factors.values()]
    return np.array(
        [chi2.isf(RARE, bins * (len(count) - 1)) / (2 * count.sum()) if len(count) > 1 else 0.0 for count in counts]
    )


def modularity(information: Float[np.ndarray, "f k"], least: Float[np.ndarray, "k"]) -> float:
    """Over the features with more than the least information of some factor."""
    known = ~np.isnan(information).any(0)
    told = information[:, known]
    if told.shape[1] < 2:
        return np.nan
    informative = told[(told > least[known]).any(1)]
    square = informative**2
    best = square.max(1)
    pure = 1 - (square.sum(1) - best) / (best * (told.shape[1] - 1))
    return float(pure.mean()) if len(pure) else np.nan


def _binned(codes: sparse.csr_array, bins: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, feature and bin of all that fired."""
    rows, width = size(codes)
    fired = codes.data != 0
    row = np.repeat(np.arange(rows), np.diff(codes.indptr))[fired]
    feature, value = codes.indices[fired].astype(np.int64), codes.data[fired].astype(np.float64)
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    np.minimum.at(low, feature, value)
    np.maximum.at(high, feature, value)
    range_of = (high - low)[feature]
    share = np.divide(value - low[feature], range_of, out=np.zeros_like(value), where=range_of > 0)
    return row, feature, np.minimum((share * bins).astype(np.int64), bins - 1)


def _information(fired: Int[np.ndarray, "f bins c"], of_value: Int[np.ndarray, "c"]) -> Float[np.ndarray, "f"]:
    """n I = Σ n_bc log n_bc - Σ n_b log n_b - Σ n_c log n_c + n log n, b also the bin of silence."""
    silent = of_value - fired.sum(1)
    both = _n_log_n(fired).sum((1, 2)) + _n_log_n(silent).sum(1)
    bin_alone = _n_log_n(fired.sum(2)).sum(1) + _n_log_n(silent.sum(1))
    rows = of_value.sum()
    mean = (both - bin_alone - _n_log_n(of_value).sum() + _n_log_n(rows)) / rows
    return np.where(mean > ROUNDING, mean, 0)


def _n_log_n(count: np.ndarray | np.integer) -> np.ndarray:
    return np.asarray(xlogy(count, count))
