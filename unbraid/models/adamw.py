"""AdamW for m models, each one row of numbers: every member has its own rate, and decay is decoupled.

mean ← β₁ mean + (1-β₁) g        square ← β₂ square + (1-β₂) g²
p    ← p - rate · decay · p - rate · (mean / (1-β₁^age)) / (√(square / (1-β₂^age)) + ε)
"""

from dataclasses import dataclass

import torch

from unbraid.axes import Float, Tensor
from unbraid.schedule import BETA1, BETA2, EPSILON

Named = dict[str, Tensor]


@dataclass(frozen=True)
class FlatParameters:
    """All weights of each member as one row, and the same numbers by name."""

    row: Float[Tensor, "m p"]
    named: Named

    @classmethod
    def copy_of(cls, tensors: Named) -> "FlatParameters":
        """These tensors, copied side by side."""
        return cls.view_of(torch.cat([tensor.flatten(1) for tensor in tensors.values()], 1), tensors)

    @classmethod
    def view_of(cls, row: Float[Tensor, "m p"], like: Named) -> "FlatParameters":
        """A row under the names and shapes of these tensors."""
        pieces = row.split([tensor[0].numel() for tensor in like.values()], 1)
        named = {name: piece.view(t.shape) for piece, (name, t) in zip(pieces, like.items(), strict=True)}
        return cls(row, named)


@dataclass(frozen=True)
class AdamW:
    """The moments of every weight."""

    mean: FlatParameters
    square: FlatParameters

    @classmethod
    def start(cls, weights: FlatParameters) -> "AdamW":
        mean, square = (FlatParameters.view_of(torch.zeros_like(weights.row), weights.named) for _ in range(2))
        return cls(mean, square)

    def update(self, row: Tensor, gradient: Tensor, rate: Float[Tensor, "m #p"], decay: float, age: int) -> None:
        """One step down the gradient, in place; `age` counts this one."""
        mean, square = self.mean.row, self.square.row
        mean.lerp_(gradient, 1 - BETA1)
        square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        denominator = square.sqrt().div_((1 - BETA2**age) ** 0.5).add_(EPSILON)
        row.mul_(1 - rate * decay)
        row.sub_(torch.div(mean, denominator, out=denominator).mul_(rate / (1 - BETA1**age)))
