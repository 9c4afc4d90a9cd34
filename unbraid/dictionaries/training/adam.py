"""Adam that can forget a feature: every feature has its own age, so one that starts anew is corrected as if new.

    mean  ← β₁ mean + (1-β₁) g        square ← β₂ square + (1-β₂) g²
    p     ← p - rate · (mean / (1-β₁^age)) / (√(square / (1-β₂^age)) + ε)

Zeroing a feature's moments without its age would make its next update (1-β₁)/√(1-β₂) ≈ 3 times too large.
"""

from dataclasses import dataclass

import torch

from unbraid.axes import Bool, Float, Tensor
from unbraid.dictionaries.operations.contract import Rates, Rows
from unbraid.schedule import BETA1, BETA2, EPSILON

WITHOUT_FEATURES = frozenset({"pre_bias", "decoder_bias", "skip"})
ROWS = ("encoder", "decoder")
"""What operations update row by row; of other weights a feature has one number."""


@dataclass(frozen=True)
class Adam:
    """Moments of every parameter, and how many updates each feature (or member, where it has none) has had."""

    mean: dict[str, Tensor]
    square: dict[str, Tensor]
    age: dict[str, Tensor]

    @classmethod
    def start(cls, parameters: dict[str, Tensor]) -> "Adam":
        zeros = {name: torch.zeros_like(p) for name, p in parameters.items()}
        ages = {name: p.new_zeros(p.shape[: 1 if name in WITHOUT_FEATURES else 2]) for name, p in parameters.items()}
        return cls(zeros, {name: z.clone() for name, z in zeros.items()}, ages)

    def update(self, parameters: dict[str, Tensor], gradients: dict[str, Tensor], rate: Float[Tensor, "m"]) -> None:
        """One step down the gradients, in place."""
        for name, parameter in parameters.items():
            gradient, mean, square = gradients[name], self.mean[name], self.square[name]
            age = self.age[name].add_(1)
            mean.lerp_(gradient, 1 - BETA1)
            square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
            scale = _like(rate, age) / (1 - BETA1**age)
            root = (1 - BETA2**age).sqrt()
            denominator = square.sqrt().div_(_like(root, parameter)).add_(EPSILON)
            parameter.sub_(_like(scale, parameter) * mean / denominator)

    def update_others(self, parameters: dict[str, Tensor], gradients: dict[str, Tensor], rate: Tensor) -> None:
        """The same for all that operations do not update."""
        self.update({name: p for name, p in parameters.items() if name not in ROWS}, gradients, rate)

    def of_rows(self, rate: Float[Tensor, "m"], parameters: dict[str, Tensor]) -> tuple[Rates, Rows]:
        """Count an update of rows; the rates of its features, and what an operation then changes in place."""
        for name in ROWS:
            self.age[name].add_(1)
        age = self.age["encoder"]
        rates = Rates((rate[:, None] / (1 - BETA1**age)).float(), (1 - BETA2**age).sqrt().float())
        return rates, Rows(*(tensors[name] for name in ROWS for tensors in (parameters, self.mean, self.square)))

    def forget(self, features: Bool[Tensor, "m f"]) -> None:
        """Make these features new: no moments, no age."""
        for name, mean in self.mean.items():
            if name not in WITHOUT_FEATURES:
                for tensor in (mean, self.square[name], self.age[name]):
                    tensor[features] = 0


def gradient_lengths(gradients: dict[str, Tensor]) -> Float[Tensor, "m"]:
    """The length of each member's whole gradient."""
    parts = [torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients.values()]
    return torch.linalg.vector_norm(torch.stack(parts), dim=0)


def clip_per_member(gradients: dict[str, Tensor], lengths: Float[Tensor, "m"], longest: float) -> None:
    """Shorten each member's whole gradient to at most this length, in place."""
    factor = (longest / lengths.clamp_min(1e-12)).clamp_max(1)
    for gradient in gradients.values():
        gradient.mul_(_like(factor, gradient))


def _like(values: Tensor, target: Tensor) -> Tensor:
    """`values` with trailing axes added until it broadcasts against `target`."""
    return values.reshape(values.shape + (1,) * (target.ndim - values.ndim))
