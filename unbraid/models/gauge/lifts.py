"""Symmetric matrices as lists of their upper entries, so that inner products of matrices are inner products of lists.

fold(A)_p = A_ab for the pairs p = (a ≤ b)        ⟨A, B⟩ = Σ_p weight_p fold(A)_p fold(B)_p

The weight is 1 on the diagonal and 2 off it, since such an entry stands twice in the whole matrix.
"""

from functools import lru_cache

import torch

from unbraid.axes import Float, Int, Tensor


@lru_cache(maxsize=32)
def pairs(width: int) -> tuple[Int[Tensor, "p"], Int[Tensor, "p"]]:
    """Rows and columns of the upper entries."""
    rows, columns = torch.triu_indices(width, width).unbind(0)
    return rows, columns


@lru_cache(maxsize=32)
def weights(width: int, dtype: torch.dtype) -> Float[Tensor, "p"]:
    """How often each upper entry stands in the whole matrix."""
    rows, columns = pairs(width)
    return torch.where(rows == columns, 1.0, 2.0).to(dtype)


@lru_cache(maxsize=32)
def _places(width: int) -> Int[Tensor, "n"]:
    """For each entry of the whole matrix, row by row: which of the list it is."""
    rows, columns = pairs(width)
    places = torch.empty(width, width, dtype=torch.long)
    places[rows, columns] = places[columns, rows] = torch.arange(len(rows))
    return places.flatten()


def outer(x: Float[Tensor, "*axes e"]) -> Float[Tensor, "*axes p"]:
    """x xᵀ, folded."""
    rows, columns = pairs(x.shape[-1])
    return x[..., rows] * x[..., columns]


def fold(matrix: Float[Tensor, "*axes e e"]) -> Float[Tensor, "*axes p"]:
    rows, columns = pairs(matrix.shape[-1])
    return matrix[..., rows, columns]


def unfold(folded: Float[Tensor, "*axes p"], width: int) -> Float[Tensor, "*axes e e"]:
    return folded[..., _places(width)].unflatten(-1, (width, width))
