"""A dictionary as it looks at a model's activations: one member, in the units of the model."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary
from unbraid.dictionaries.lists import encode
from unbraid.dictionaries.stack import Stack
from unbraid.errors import Refusal

BLOCK = 1024
"""So many tokens are encoded at a time."""


@dataclass(frozen=True)
class Lens:
    """A stack of one, with its normalisation folded in."""

    stack: Stack

    @property
    def width(self) -> int:
        return self.stack.encoder.shape[-1]

    @property
    def rule_learns(self) -> bool:
        """Whether what fires hangs on weights or memories of the rule's own."""
        return bool(self.stack.rule or self.stack.memory)

    @torch.no_grad()
    def encode(self, x: Float[Tensor, "b d"]) -> Codes:
        return encode(self.stack, x.contiguous())

    @torch.no_grad()
    def decode(self, codes: Codes) -> Float[Tensor, "b d"]:
        return self.stack.decode(codes)[0]

    def reconstruct(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        parts = [self.decode(self.encode(part)) for part in x.split(BLOCK)]
        return torch.cat(parts)

    def centred(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        """What features have to write: x without the pre-bias."""
        return x if self.stack.pre_bias is None else x - self.stack.pre_bias[0]

    def at_random(self, seed: int) -> "Lens":
        """Random directions that fire by the same rule on inputs centred alike: what chance scores.

        A rule that learns has its thresholds kept, and with them what they are measured against: bias and row lengths.
        """
        own = self.stack
        dictionary = Dictionary(features=own.features, activation=own.activation, pre_bias=own.pre_bias is not None)
        drawn = Stack.start(dictionary, self.width, [seed])
        if not self.rule_learns:
            return Lens(replace(drawn, pre_bias=own.pre_bias))
        lengths = own.encoder.norm(dim=-1, keepdim=True)
        return Lens(replace(own, encoder=lengths * drawn.encoder, decoder=drawn.decoder))


def slots(codes: Codes) -> tuple[Int[Tensor, "b k"], Float[Tensor, "b k"]]:
    """Features and values of a stack of one, token by token."""
    values = codes.values[0]
    features = codes.features[0] if codes.features is not None else torch.arange(codes.width).expand_as(values)
    return features, values


def refuse_another_width(lenses: Iterable[Lens], width: int, where: str) -> None:
    for lens in lenses:
        if lens.width != width:
            raise Refusal(
                f"the dictionary takes {lens.width} dimensions and {where} has {width}; accepted: the model and site "
                "that it was trained on"
            )
