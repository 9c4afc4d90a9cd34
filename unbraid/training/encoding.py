"""What mechanisms make of codes between firing and decoding, for the fast steps; and the way back for gradients.

∂/∂(what would fire) = (∂ encode)ᵀ · ∂/∂(what fires)        by autograd, in the slots alone
"""

from dataclasses import dataclass

import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.activation import Named
from unbraid.dictionaries.stack import Stack
from unbraid.mechanisms.mechanism import Mechanism, Mechanisms, Signals
from unbraid.training.step import encode


@dataclass(frozen=True)
class Encoded:
    """What fires, and what would have; and what that was made from, where a mechanism acts here."""

    codes: Codes
    would_fire: Codes
    leaves: Named
    fires: Float[Tensor, "m b k"] | None = None

    @classmethod
    def of(cls, codes: Codes, stack: Stack, mechanisms: Mechanisms, signals: Signals) -> "Encoded":
        if all(type(mechanism).encode is Mechanism.encode for mechanism in mechanisms.values()):
            return cls(codes, codes, {})
        leaves, values = stack.leaves(), codes.values.detach()
        if codes.features is not None:  # what fires will be written in the place of what would
            values = values.clone(memory_format=torch.contiguous_format)
        values.requires_grad_()
        with torch.enable_grad():
            after = encode(Codes(codes.features, values, codes.width), leaves, mechanisms, signals)
        if after.features is not codes.features or after.values.shape != values.shape:
            raise TypeError("a mechanism's encode must return codes in the slots it was given")
        before, fires = (Codes(codes.features, one.detach(), codes.width) for one in (values, after.values))
        return cls(fires, before, {"values": values, **leaves.parameters()}, after.values)

    @torch.no_grad()
    def back(self, gradients: Float[Tensor, "m b k"], in_weights: Named) -> tuple[Float[Tensor, "m b k"], Named]:
        """Gradients in what would fire, and in weights, from those in what fires."""
        if self.fires is None:
            return gradients, in_weights
        found = torch.autograd.grad(self.fires, list(self.leaves.values()), gradients, allow_unused=True)
        through = {name: gradient for name, gradient in zip(self.leaves, found, strict=True) if gradient is not None}
        in_values = through.pop("values").contiguous()
        both = {name: gradient + in_weights.get(name, 0) for name, gradient in through.items()}
        return in_values, {**in_weights, **both}
