"""The registry of attention: each kind scores tokens and mixes their values. A new one is one line here."""

from typing import TYPE_CHECKING

from unbraid.config import tagged
from unbraid.models.attention.attention import Attention, AttentionMask, HeadInputs, HeadOutputs, Softmax
from unbraid.models.attention.hopfield import Hopfield
from unbraid.models.attention.routed import Routed

ATTENTIONS: dict[str, type[Attention]] = {
    "softmax": Softmax,
    "routed": Routed,
    "hopfield": Hopfield,
}

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
