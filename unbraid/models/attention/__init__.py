"""Ways for heads to look: each scores tokens and mixes their values; listing one here is all it takes to use it."""

from typing import TYPE_CHECKING

from unbraid.config import tagged
from unbraid.models.attention.attention import Attention, Heads, Mixed, Sight
from unbraid.models.attention.softmax import Softmax

ATTENTIONS: dict[str, type[Attention]] = {
    "softmax": Softmax,
}

if TYPE_CHECKING:
    AnyAttention = Attention
else:
    AnyAttention = tagged(ATTENTIONS)

__all__ = ["ATTENTIONS", "AnyAttention", "Attention", "Heads", "Mixed", "Sight", "Softmax"]
