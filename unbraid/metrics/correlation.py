"""How much features fire alike on average: the mean absolute correlation over all pairs, exact, a block at a time.

z_i = (f_i - mean f_i) / |f_i - mean f_i|        mean over i < j of |z_i · z_j|

Features whose codes do not vary have no correlation and are left out. There is never a matrix of all pairs: dense codes
are multiplied a block of features by a block of features. Where codes are sparse, most pairs never fire together, and
the correlation of such a pair is -a_i a_j with a_i = √b · mean f_i / |f_i - mean f_i|. So

    Σ_{i<j} |z_i · z_j| = ½ ((Σ |a_i|)² - Σ a_i²) + Σ over pairs that fire together of |z_i · z_j| - |a_i a_j|

and only those pairs are looked at, in blocks of FᵀF that are as sparse as they.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from unbraid.axes import Float, Int, Tensor

if TYPE_CHECKING:
    from scipy.sparse import csc_array

BLOCK = 1024
"""Features at a time."""
SPARSE = 1 / 30
"""By lists where less than this share of the codes is not 0."""
LEAST_VARIANCE = 1e-8
"""Of a feature's mean square; less is rounding."""


def mean_correlation(
    values: Float[Tensor, "m b k"], features: Int[Tensor, "m b k"] | None = None, width: int | None = None
) -> Float[Tensor, "m"]:
    """The mean absolute Pearson correlation over all pairs of features whose codes vary, of each member.

    Parameters
    ----------
    values : Tensor, shape (m, b, k)
        What fired, slot by slot.
    features : integer Tensor, shape (m, b, k), optional
        The feature of each slot; without it slot j is feature j.
    width : int, optional
        The number of features; k where slots are features.

    Returns
    -------
    Tensor, shape (m,)
        Between 0 and 1, in float64; 0 where fewer than two features vary.

    Examples
    --------
    >>> import torch
    >>> from unbraid.metrics.correlation import mean_correlation
    >>> mean_correlation(torch.tensor([[[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]]])).round(decimals=6).tolist()
    [1.0]
    """
    members, samples, slots = values.shape
    width = slots if width is None else width
    sparse = float((values != 0).sum()) < SPARSE * members * samples * width
    of_member = _from_lists if sparse else _from_blocks
    lists = [None] * members if features is None else list(features)
    means = [of_member(own, places, width) for own, places in zip(values, lists, strict=True)]
    return torch.tensor(means, dtype=torch.float64)


def _from_blocks(values: Float[Tensor, "b k"], features: Int[Tensor, "b k"] | None, width: int) -> float:
    """By dense products of standardised features."""
    if features is not None:
        values = values.new_zeros(len(values), width).scatter_add(1, features.long(), values)
    varies = torch.cat([_standard(values[:, low : low + BLOCK])[1] for low in range(0, width, BLOCK)])
    total = 0.0
    for low in range(0, width, BLOCK):
        rows = _standard(values[:, low : low + BLOCK])[0]
        total += float((rows.T @ rows).triu_(1).abs_().sum(dtype=torch.float64))
        for right in range(low + BLOCK, width, BLOCK):
            other = _standard(values[:, right : right + BLOCK])[0]
            total += float((rows.T @ other).abs_().sum(dtype=torch.float64))
    return _over_pairs(total, int(varies.sum()))


def _standard(values: Float[Tensor, "b k"]) -> tuple[Float[Tensor, "b k"], Tensor]:
    """The features centred and at length one, 0 where they do not vary; and which vary."""
    values = values.double()
    centred = values - values.mean(0)
    squares = centred.square().sum(0)
    varies = squares > LEAST_VARIANCE * values.square().sum(0)
    return (centred / squares.sqrt().where(varies, torch.inf)).float(), varies


def _from_lists(values: Float[Tensor, "b k"], features: Int[Tensor, "b k"] | None, width: int) -> float:
    """By the pairs that fired together; the others have a closed form."""
    from scipy.sparse import csc_array  # takes a while to import

    samples, codes = len(values), values.double().numpy()
    sample, slot = codes.nonzero()
    feature = slot if features is None else features.numpy()[sample, slot]
    fired = csc_array((codes[sample, slot], (sample, feature)), shape=(samples, width))
    offset = np.asarray(fired.sum(0)).ravel() / np.sqrt(samples)
    squares = np.asarray(fired.multiply(fired).sum(0)).ravel()
    lengths = squares - offset**2
    varies = lengths > LEAST_VARIANCE * squares
    scale = np.where(varies, 1 / np.sqrt(np.where(varies, lengths, 1)), 0)
    apart = np.abs(offset * scale)
    total = (apart.sum() ** 2 - np.square(apart).sum()) / 2
    for first, second, products in _together(fired, width):
        scores = (products - offset[first] * offset[second]) * scale[first] * scale[second]
        total += (np.abs(scores) - apart[first] * apart[second]).sum()
    return _over_pairs(float(total), int(varies.sum()))


def _together(fired: "csc_array", width: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """First and second feature, i < j, and Σ_b f_i f_j of the pairs that fired together, a block of i at a time."""
    for low in range(0, width, BLOCK):
        block = (fired[:, low : low + BLOCK].T @ fired[:, low:]).tocoo()
        later = block.coords[1] > block.coords[0]
        yield low + block.coords[0][later], low + block.coords[1][later], block.data[later]


def _over_pairs(total: float, features: int) -> float:
    return total / (features * (features - 1) / 2) if features > 1 else 0.0
