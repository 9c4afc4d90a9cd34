"""What each token makes of itself between two attentions: one hidden layer.

dense    W₂ gelu(W₁ x + b₁) + b₂
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from torch.nn.functional import gelu

from unbraid.axes import Bool, Float, Tensor
from unbraid.config import Record, tagged
from unbraid.models.attention.attention import Drop, Named, Weights
from unbraid.models.layers import linear
from unbraid.models.starting import Start, uniform


@dataclass(frozen=True)
class Tokens:
    """What a feed-forward is given."""

    x: Float[Tensor, "m b t d"]
    mask: Bool[Tensor, "b t"]
    weights: Weights
    asked: frozenset[str] = frozenset()
    drop: Drop | None = None


@dataclass(frozen=True)
class Fed:
    """What a feed-forward gives back."""

    out: Float[Tensor, "m b t d"]
    recorded: Named = field(default_factory=dict)
    costs: Named = field(default_factory=dict)


class FeedForward(Record, ABC):
    hooks: ClassVar[frozenset[str]] = frozenset()

    def refuse(self, hidden: int) -> None:
        """A ValueError if it cannot work with a hidden layer of this width."""

    def parameters(self, rng: np.random.Generator, width: int, hidden: int) -> Start:
        return {
            "in.weight": uniform(rng, width, hidden, width),
            "in.bias": uniform(rng, width, hidden),
            "out.weight": uniform(rng, hidden, width, hidden),
            "out.bias": uniform(rng, hidden, width),
        }

    @abstractmethod
    def feed(self, given: Tokens) -> Fed: ...


class Dense(FeedForward):
    kind: Literal["dense"] = "dense"

    def feed(self, given: Tokens) -> Fed:
        return Fed(finish(given, begin(given)))


def begin(given: Tokens) -> Float[Tensor, "m b t f"]:
    """The hidden layer."""
    hidden = gelu(linear(given.x, given.weights["in.weight"], given.weights["in.bias"]))
    return hidden if given.drop is None else given.drop("hidden", hidden)


def finish(given: Tokens, hidden: Float[Tensor, "m b t f"]) -> Float[Tensor, "m b t d"]:
    out = linear(hidden, given.weights["out.weight"], given.weights["out.bias"])
    return out if given.drop is None else given.drop("out", out)


FEED_FORWARDS: dict[str, type[FeedForward]] = {
    "dense": Dense,
}

if TYPE_CHECKING:
    AnyFeedForward = FeedForward
else:
    AnyFeedForward = tagged(FEED_FORWARDS)
