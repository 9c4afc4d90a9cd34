"""A dictionary as a model's activations see it: inputs are normalised on the way in, and put back on the way out.

codes = dictionary((x - offset) / scale)        x̂ = scale · decoded + offset
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary
from unbraid.dictionaries.lists import encode
from unbraid.dictionaries.stack import Stack
from unbraid.errors import Refusal

BLOCK = 1024
"""So many tokens are encoded at a time."""


@dataclass(frozen=True)
class Lens:
    """One dictionary (a stack of one), and the normalisation it was trained with."""

    stack: Stack
    offset: Float[Tensor, "d"]
    scale: float = 1.0

    @classmethod
    def of(cls, stack: Stack) -> "Lens":
        return cls(stack, torch.zeros(stack.encoder.shape[-1]))

    def normalised(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        return (x - self.offset) / self.scale

    @torch.no_grad()
    def encode(self, x: Float[Tensor, "b d"]) -> Codes:
        return encode(self.stack, self.normalised(x))

    @torch.no_grad()
    def decode(self, codes: Codes) -> Float[Tensor, "b d"]:
        return self.stack.decode(codes)[0] * self.scale + self.offset

    def reconstruct(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        parts = [self.decode(self.encode(part)) for part in x.split(BLOCK)]
        return torch.cat(parts) if parts else x

    def at_random(self, seed: int) -> "Lens":
        """Random directions that fire by the same rule on inputs centred alike: what chance scores."""
        own = self.stack
        dictionary = Dictionary(
            features=own.features, activation=own.activation, pre_bias=own.pre_bias is not None, start="tied"
        )
        drawn = Stack.start(dictionary, own.encoder.shape[-1], [seed])
        return replace(self, stack=replace(drawn, pre_bias=own.pre_bias))


def slots(codes: Codes) -> tuple[Tensor, Tensor]:
    """Features and values of a stack of one, token by token."""
    values = codes.values[0]
    features = codes.features[0] if codes.features is not None else torch.arange(codes.width).expand_as(values)
    return features, values


def refuse_another_width(lenses: Sequence[Lens], width: int, where: str) -> None:
    for lens in lenses:
        if (own := lens.stack.encoder.shape[-1]) != width:
            raise Refusal(
                f"the dictionary takes {own} dimensions and {where} has {width}; accepted: the model and site it was "
                "trained on"
            )
