"""Gaussian beliefs of all heads of one degree, brought into the frame that all tokens share.

    m = Rᵀ μ        S = Rᵀ Σ R        P = S⁻¹

Transport between tokens is R_i R_jᵀ, so that in the common frame there is none: what one token believes can be
compared with what another does as it stands. With Σ diagonal in its own frame neither S nor P takes a decomposition.
"""

from dataclasses import dataclass

import torch

from unbraid.axes import Float, Tensor
from unbraid.models.gauge.lifts import fold, outer, pairs, unfold

FLOOR = 1e-6
"""Added, relative to its mean, to the diagonal of a covariance that rounding made indefinite; ten times more a try."""
TRIES = 5


class Indefinite(ArithmeticError):
    """A covariance is none any more, of this member, and could not be mended."""

    def __init__(self, member: int) -> None:
        super().__init__(f"of member {member}")
        self.member = member


@dataclass(frozen=True)
class Beliefs:
    """Of every token and head; matrices are folded (see `lifts`)."""

    mean: Float[Tensor, "m b t h e"]
    covariance: Float[Tensor, "m b t h p"]
    precision: Float[Tensor, "m b t h p"]
    weighted: Float[Tensor, "m b t h e"]
    """P m."""
    logdet: Float[Tensor, "m b t h"]
    """log |S|."""

    @property
    def width(self) -> int:
        return self.mean.shape[-1]

    @property
    def second(self) -> Float[Tensor, "m b t h p"]:
        """S + m mᵀ."""
        return self.covariance + outer(self.mean)

    @property
    def quadratic(self) -> Float[Tensor, "m b t h"]:
        """mᵀ P m."""
        return (self.mean * self.weighted).sum(-1)

    @classmethod
    def turned(
        cls,
        mean: Float[Tensor, "m b t h e"],
        variance: Float[Tensor, "m b t h e"],
        turn: Float[Tensor, "m b t e e"],
    ) -> "Beliefs":
        """From means and variances in tokens' own frames."""
        rows, columns = pairs(mean.shape[-1])
        squares = turn[..., rows] * turn[..., columns]  # R_ka R_kb for every own dimension k and pair ab
        return cls(
            mean @ turn,
            variance @ squares,
            variance.reciprocal() @ squares,
            (mean / variance) @ turn,
            variance.log().sum(-1),
        )

    @classmethod
    def of(cls, mean: Float[Tensor, "m b t h e"], covariance: Float[Tensor, "m b t h p"]) -> "Beliefs":
        """From means and covariances that are in the common frame already."""
        if mean.shape[-1] == 1:
            covariance = covariance.clamp_min(FLOOR**2)
            precision = covariance.reciprocal()
            return cls(mean, covariance, precision, precision * mean, covariance.log()[..., 0])
        root = definite_root(unfold(covariance, mean.shape[-1]))
        precision = torch.cholesky_inverse(root)
        weighted = (precision @ mean[..., None])[..., 0]
        return cls(mean, covariance, fold(precision), weighted, 2 * root.diagonal(0, -2, -1).log().sum(-1))


def definite_root(matrix: Float[Tensor, "*axes e e"]) -> Float[Tensor, "*axes e e"]:
    """The Cholesky root; one that rounding has made indefinite is lifted until it is not, or refused."""
    root, problem = torch.linalg.cholesky_ex(matrix)
    if not problem.any():
        return root
    level = matrix.diagonal(0, -2, -1).abs().mean(-1)[..., None, None]
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype)
    for attempt in range(TRIES):
        matrix = torch.where((problem != 0)[..., None, None], matrix + FLOOR * 10**attempt * level * eye, matrix)
        root, problem = torch.linalg.cholesky_ex(matrix)
        if not problem.any():
            return root
    raise Indefinite(int((problem.flatten(1) != 0).any(1).nonzero()[0]))
