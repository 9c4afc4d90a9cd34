"""The registry of attention: each kind scores tokens and mixes their values. A new one is one line here."""

from typing import TYPE_CHECKING

from unbraid.config import Registry, tagged
from unbraid.models.attention.attention import Attention, AttentionMask, HeadInputs, HeadOutputs, Softmax
from unbraid.models.attention.hopfield import Hopfield
from unbraid.models.attention.routed import Routed

BUILT_IN: dict[str, type[Attention]] = {
    "softmax": Softmax,
    "routed": Routed,
    "hopfield": Hopfield,
}
ATTENTIONS = Registry("attention kind", Attention, BUILT_IN)

if TYPE_CHECKING:
    AnyAttention = Attention
else:
    AnyAttention = tagged(ATTENTIONS)

__all__ = [
    "ATTENTIONS",
    "AnyAttention",
    "Attention",
    "AttentionMask",
    "HeadInputs",
    "HeadOutputs",
    "Hopfield",
    "Routed",
    "Softmax",
]
