"""Gaussian beliefs of all heads of one degree, brought into the frame that all tokens share.

    m = Rᵀ μ        S = Rᵀ Σ R        P = S⁻¹

Transport between tokens is R_i R_jᵀ, so that in the common frame there is none: what one token believes can be compared
with what another does as it stands. With Σ diagonal in its own frame neither S nor P takes a decomposition.

Symmetric matrices are kept folded, as lists of their upper entries, so that inner products of matrices are inner
products of lists:

    fold(A)_p = A_ab for the pairs p = (a ≤ b)        ⟨A, B⟩ = Σ_p weight_p fold(A)_p fold(B)_p

The weight is 1 on the diagonal and 2 off it, since such an entry stands twice in the whole matrix. Entries are picked
by products with constant matrices: their backward pass is faster than that of indexing.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch.nn.functional import one_hot

from unbraid.axes import Float, Int, Tensor
from unbraid.models.gauge.frames import into

FLOOR = 1e-6
"""Added, relative to its mean, to the diagonal of a covariance that rounding made indefinite; ten times more a try."""
TRIES = 5


class Indefinite(ArithmeticError):
    """A covariance is none any more, of this member, and could not be mended."""

    def __init__(self, member: int) -> None:
        super().__init__(f"of member {member}")
        self.member = member


@dataclass(frozen=True)
class Inverse:
    """What else is known of a covariance."""

    precision: Float[Tensor, "m b t h p"]
    logdet: Float[Tensor, "m b t h"]


@dataclass(frozen=True)
class Beliefs:
    """Of every token and head, in the common frame; matrices are folded."""

    mean: Float[Tensor, "m b t h e"]
    covariance: Float[Tensor, "m b t h p"]
    known: Inverse | None = None
    """Where it came for nothing; else it is made when somebody asks. So too P m:"""
    known_weighted: Float[Tensor, "m b t h e"] | None = None

    @classmethod
    def turned(
        cls,
        mean: Float[Tensor, "m b t h e"],
        variance: Float[Tensor, "m b t h e"],
        turn: Float[Tensor, "m b t e e"],
    ) -> "Beliefs":
        """From means and variances in tokens' own frames."""
        if mean.shape[-1] == 1:
            return cls(mean, variance, Inverse(variance.reciprocal(), variance.log()[..., 0]))
        heads, precision = mean.shape[-2], variance.reciprocal()
        means = into(turn, torch.cat([mean, precision * mean], -2))
        squares = products(turn)  # R_ka R_kb for every own dimension k and pair ab
        spreads = torch.cat([variance, precision], -2) @ squares
        inverse = Inverse(spreads[..., heads:, :], variance.log().sum(-1))
        return cls(means[..., :heads, :], spreads[..., :heads, :], inverse, means[..., heads:, :])

    def with_mean(self, mean: Float[Tensor, "m b t h e"]) -> "Beliefs":
        """The same covariance about another mean."""
        return Beliefs(mean, self.covariance, self.inverse)

    @property
    def width(self) -> int:
        return self.mean.shape[-1]

    @property
    def degree(self) -> int:
        return (self.width - 1) // 2

    @cached_property
    def inverse(self) -> Inverse:
        return _inverse(self.covariance, self.width) if self.known is None else self.known

    @property
    def precision(self) -> Float[Tensor, "m b t h p"]:
        return self.inverse.precision

    @property
    def logdet(self) -> Float[Tensor, "m b t h"]:
        """log |S|."""
        return self.inverse.logdet

    @cached_property
    def weighted(self) -> Float[Tensor, "m b t h e"]:
        """P m."""
        if self.known_weighted is not None:
            return self.known_weighted
        return times(unfold(self.precision, self.width), self.mean)

    @property
    def second(self) -> Float[Tensor, "m b t h p"]:
        """S + m mᵀ."""
        return self.covariance + products(self.mean)


def times(matrix: Float[Tensor, "*axes e e"], x: Float[Tensor, "*axes e"]) -> Float[Tensor, "*axes e"]:
    """Every small matrix times its vector."""
    return (matrix @ x[..., None])[..., 0] if x.shape[-1] > 1 else matrix[..., 0] * x


def definite_root(matrix: Float[Tensor, "*axes e e"]) -> Float[Tensor, "*axes e e"]:
    """The Cholesky root; one that rounding has made indefinite is lifted until it is not, or refused."""
    root, problem = torch.linalg.cholesky_ex(matrix)
    if not problem.any():
        return root
    level = matrix.diagonal(0, -2, -1).abs().mean(-1)[..., None, None]
    eye = torch.eye(matrix.shape[-1]).to(matrix)
    for attempt in range(TRIES):
        matrix = torch.where((problem != 0)[..., None, None], matrix + FLOOR * 10**attempt * level * eye, matrix)
        root, problem = torch.linalg.cholesky_ex(matrix)
        if not problem.any():
            return root
    raise Indefinite(int((problem.flatten(1) != 0).any(1).nonzero()[0]))


def _inverse(covariance: Float[Tensor, "m b t h p"], width: int) -> Inverse:
    if width == 1:
        safe = covariance.clamp_min(FLOOR**2)
        return Inverse(safe.reciprocal(), safe.log()[..., 0])
    precision, logdet = _Inversion.apply(unfold(covariance, width))
    return Inverse(fold(precision), logdet)


class _Inversion(torch.autograd.Function):
    """S ↦ S⁻¹ and log |S| of definite matrices, whose gradients need nothing but the inverse itself."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> tuple[Tensor, Tensor]:
        root = definite_root(matrix)
        inverse = torch.cholesky_inverse(root)
        ctx.save_for_backward(inverse)
        return inverse, 2 * root.diagonal(0, -2, -1).log().sum(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        of_inverse, of_logdet = gradients
        return of_logdet[..., None, None] * inverse - inverse @ of_inverse @ inverse


def _upper(width: int) -> tuple[Int[Tensor, "p"], Int[Tensor, "p"]]:
    rows, columns = torch.triu_indices(width, width).unbind(0)
    return rows, columns


@lru_cache(maxsize=64)
def pair_weights(width: int, dtype: torch.dtype) -> Float[Tensor, "p"]:
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
    if x.shape[-1] == 1:
        return x.square()
    rows, columns = (picked.to(x) for picked in _picked(x.shape[-1], x.dtype))
    return (x @ rows) * (x @ columns)


def fold(matrix: Float[Tensor, "*axes e e"]) -> Float[Tensor, "*axes p"]:
    """Of a symmetric matrix; of one that is not quite, the mean of both halves."""
    width = matrix.shape[-1]
    if width == 1:
        return matrix[..., 0]
    halves = _spread(width, matrix.dtype) / pair_weights(width, matrix.dtype)[:, None]
    return matrix.flatten(-2) @ halves.T.to(matrix)


def unfold(folded: Float[Tensor, "*axes p"], width: int) -> Float[Tensor, "*axes e e"]:
    if width == 1:
        return folded[..., None]
    return (folded @ _spread(width, folded.dtype).to(folded)).unflatten(-1, (width, width))
