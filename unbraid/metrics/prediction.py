"""A factor's values told from codes: on which rows, on which scale, and how often right.

balanced accuracy = mean over the values asked of the share of their rows that are told right    chance: 1 / values
"""

import numpy as np
from scipy import sparse

from unbraid.axes import Bool, Float, Int

ROUNDING = 1e-12
"""A variance below this share of the mean square is what rounding leaves of none."""


def size(codes: sparse.csr_array) -> tuple[int, int]:
    """Rows and features."""
    rows, features = codes.shape  # pyright: ignore[reportGeneralTypeIssues] (scipy's own hints allow no shape)
    return int(rows), int(features)


def sides(
    values: Int[np.ndarray, "n"], train: Bool[np.ndarray, "n"]
) -> tuple[Int[np.ndarray, "a"], Int[np.ndarray, "t"]] | None:
    """The rows to fit on and those to ask, of those with a value (not below 0); None if either has fewer than two."""
    fit, asked = (np.flatnonzero((values >= 0) & side) for side in (train, ~train))
    return (fit, asked) if min(len(np.unique(values[side])) for side in (fit, asked)) > 1 else None


def spread(codes: sparse.csr_array) -> Float[np.ndarray, "f"]:
    """The standard deviation of each feature; exactly 0 where it never changes."""
    square = np.asarray((codes**2).mean(0))
    variance = square - np.asarray(codes.mean(0)) ** 2
    return np.sqrt(np.where(variance > ROUNDING * square, variance, 0))


def scaled(codes: sparse.csr_array, by: Float[np.ndarray, "f"]) -> sparse.csr_array:
    """Each feature divided by a number of its own; by 0 it is silenced. Zeros stay zeros: nothing is centred."""
    factor = np.divide(1, by, out=np.zeros_like(by), where=by > 0)
    return sparse.csr_array((codes.data * factor[codes.indices], codes.indices, codes.indptr), shape=codes.shape)


def balanced_accuracy(said: Int[np.ndarray, "t"], values: Int[np.ndarray, "t"]) -> float:
    """A value that no training row had cannot be told, and counts as wrong."""
    return float(np.mean([(said[values == one] == one).mean() for one in np.unique(values)]))
