"""Symmetric matrices as lists of their upper entries, so that inner products of matrices are inner products of lists.

    fold(A)_p = A_ab for the pairs p = (a ≤ b)        ⟨A, B⟩ = Σ_p weight_p fold(A)_p fold(B)_p

The weight is 1 on the diagonal and 2 off it, since such an entry stands twice in the whole matrix. Entries are picked
by products with constant matrices: that goes back faster than indexing.
"""

from functools import lru_cache

import torch
from torch.nn.functional import one_hot

from unbraid.axes import Float, Int, Tensor


def _upper(width: int) -> tuple[Int[Tensor, "p"], Int[Tensor, "p"]]:
    rows, columns = torch.triu_indices(width, width).unbind(0)
    return rows, columns


@lru_cache(maxsize=64)
def weights(width: int, dtype: torch.dtype) -> Float[Tensor, "p"]:
    """How often each upper entry stands in the whole matrix."""
    rows, columns = _upper(width)
    return torch.where(rows == columns, 1.0, 2.0).to(dtype)


@lru_cache(maxsize=64)
def _picked(width: int, dtype: torch.dtype) -> tuple[Float[Tensor, "e p"], Float[Tensor, "e p"]]:
    """Which number stands in the row of each upper entry, and which in its column."""
    rows, columns = (one_hot(part, width).T.to(dtype) for part in _upper(width))
    return rows, columns


@lru_cache(maxsize=64)
def _spread(width: int, dtype: torch.dtype) -> Float[Tensor, "p n"]:
    """Where in the whole matrix, row by row, each upper entry stands."""
    rows, columns = _upper(width)
    whole = one_hot(width * rows + columns, width**2) + one_hot(width * columns + rows, width**2)
    return whole.clamp_max(1).to(dtype)


def products(x: Float[Tensor, "*axes e"]) -> Float[Tensor, "*axes p"]:
    """x xᵀ, folded."""
    rows, columns = _picked(x.shape[-1], x.dtype)
    return (x @ rows) * (x @ columns)


def fold(matrix: Float[Tensor, "*axes e e"]) -> Float[Tensor, "*axes p"]:
    """Of a symmetric matrix; of one that is not quite, the mean of both halves."""
    width = matrix.shape[-1]
    return matrix.flatten(-2) @ (_spread(width, matrix.dtype) / weights(width, matrix.dtype)[:, None]).T


def unfold(folded: Float[Tensor, "*axes p"], width: int) -> Float[Tensor, "*axes e e"]:
    return (folded @ _spread(width, folded.dtype)).unflatten(-1, (width, width))
