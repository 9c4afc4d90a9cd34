"""How the directions of a baseline fire: three kinds of least squares, each also applicable to random directions.

LeastSquares   c = argmin |x - c·D|²                             every direction, either sign        (PCA, ICA)
Nearest        c_i = max(x·D_i, 0) for the nearest centre i only  one at a time, never negative       (clusters)
NonNegative    c = argmin over c ≥ 0 of |[x⁺ x⁻] - c·P|²          those that help, never negative      (NMF)
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.kernels import compiled

SWEEPS, TOLERANCE = 1000, 1e-5
"""Non-negative codes are settled when a sweep moves none by more than this share of the sample's largest code."""


ROUNDING = 1e-5
"""What is left of a sample below this share of its length is rounding, and fires nothing."""


class Rule(ABC):
    @abstractmethod
    def codes(self, x: Float[Tensor, "b d"], directions: Float[Tensor, "m f d"]) -> Codes:
        """What fires, and how strongly."""

    @abstractmethod
    def renewed(self, directions: Float[Tensor, "m f d"]) -> "Rule":
        """The same rule, for other directions of the same number and size."""


@dataclass(frozen=True)
class LeastSquares(Rule):
    """Every direction fires: the coefficients that rebuild x best."""

    readers: Float[Tensor, "m d f"]

    @classmethod
    def of(cls, directions: Float[Tensor, "m f d"]) -> "LeastSquares":
        return cls(torch.linalg.pinv(directions.double()).float())

    def codes(self, x: Float[Tensor, "b d"], directions: Float[Tensor, "m f d"]) -> Codes:  # noqa: ARG002
        return Codes.dense(x @ self.readers)

    def renewed(self, directions: Float[Tensor, "m f d"]) -> "LeastSquares":
        return LeastSquares.of(directions)


@dataclass(frozen=True)
class Nearest(Rule):
    """The nearest centre fires with its least-squares strength; with more slots, again for what that leaves over.

    A centre is its direction times its length. A strength that would be negative is 0: nothing fires.
    """

    lengths: Float[Tensor, "m f"]
    slots: int = 1

    def codes(self, x: Float[Tensor, "b d"], directions: Float[Tensor, "m f d"]) -> Codes:
        members, width, _ = directions.shape
        left = x.expand(members, *x.shape).clone()
        lengths, member = self.lengths[:, None, :], torch.arange(members)[:, None]
        least = ROUNDING * x.norm(dim=-1, keepdim=True)
        features = torch.empty(members, len(x), 0, dtype=torch.long)
        values = x.new_empty(members, len(x), 0)
        for _ in range(min(self.slots, width)):
            projection = left @ directions.mT
            closeness = (projection - lengths / 2) * lengths  # |x|²/2 - |x - centre|²/2
            best = closeness.scatter(-1, features, -torch.inf).argmax(-1)
            strength = projection.gather(-1, best[..., None])
            strength = strength * (strength > least)
            left -= strength * directions[member, best]
            features, values = torch.cat([features, best[..., None]], -1), torch.cat([values, strength], -1)
        return Codes(features, values, width)

    def renewed(self, directions: Float[Tensor, "m f d"]) -> "Nearest":
        return Nearest(self.lengths[:1].expand(len(directions), -1), self.slots)


@dataclass(frozen=True)
class NonNegative(Rule):
    """The non-negative mixture of parts that rebuilds x best, with x split into its positive and negative parts."""

    parts: Float[Tensor, "m f e"]

    def codes(self, x: Float[Tensor, "b d"], directions: Float[Tensor, "m f d"]) -> Codes:  # noqa: ARG002
        parts = self.parts.double()
        grams, products = parts @ parts.mT, split(x.double()) @ parts.mT
        solved = [_settle(g.numpy(), p.numpy(), SWEEPS, TOLERANCE) for g, p in zip(grams, products, strict=True)]
        return Codes.dense(torch.stack([torch.from_numpy(codes) for codes in solved]).to(x))

    def renewed(self, directions: Float[Tensor, "m f d"]) -> "NonNegative":
        return NonNegative(split(directions))


def split(x: Tensor) -> Tensor:
    """`[x⁺ x⁻]`: the positive part beside the negative part, so that x = x⁺ - x⁻ and nothing is negative."""
    return torch.cat([x.clamp_min(0), (-x).clamp_min(0)], -1)


def fold(parts: Tensor) -> Tensor:
    """The way back from `split`."""
    positive, negative = parts.chunk(2, -1)
    return positive - negative


@compiled()
def _settle(gram, products, sweeps, tolerance):
    """Coordinate descent on ½c·G·c - p·c, c ≥ 0, sample by sample; a coordinate that stays at 0 costs a comparison."""
    codes = products * 0
    for b in range(products.shape[0]):
        code, slope = codes[b], -products[b]
        for _ in range(sweeps):
            moved, largest = 0.0, 0.0
            for j in range(code.size):
                step = max(-slope[j] / gram[j, j], -code[j])
                if step != 0:
                    code[j] += step
                    slope += step * gram[j]
                    moved = max(moved, abs(step))
                largest = max(largest, code[j])
            if moved <= tolerance * largest:
                break
    return codes
