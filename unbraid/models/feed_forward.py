"""What each token makes of itself between two attentions: one hidden layer.

dense    W₂ gelu(W₁ x + b₁) + b₂
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field
from torch.nn.functional import gelu

from unbraid.axes import Bool, Float, Tensor
from unbraid.config import Record, tagged
from unbraid.models.attention.attention import Drop, Named, Weights
from unbraid.models.layers import linear
from unbraid.models.routing import route
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


class RoutedExperts(FeedForward):
    kind: Literal["routed"] = "routed"
    experts: int = Field(default=4, ge=1)
    k: int = Field(default=1, ge=1)
    balance: float = Field(default=0.01, ge=0)
    hooks: ClassVar[frozenset[str]] = frozenset({"hook_gate"})

    def refuse(self, hidden: int) -> None:
        if hidden % self.experts:
            raise ValueError(f"d_ff is {hidden}, which {self.experts} experts do not divide; accepted: a multiple")
        if self.k > self.experts:
            raise ValueError(
                f"feed_forward.k is {self.k}, more than the {self.experts} experts; accepted: 1 to {self.experts}"
            )

    def parameters(self, rng: np.random.Generator, width: int, hidden: int) -> Start:
        return super().parameters(rng, width, hidden) | {"router": uniform(rng, width, self.experts, width)}

    def feed(self, given: Tokens) -> Fed:
        routed = route(given.x, given.weights["router"], self.k, given.mask)
        groups = begin(given).unflatten(-1, (self.experts, -1)) * routed.gates[..., None]
        out = finish(given, groups.flatten(-2))
        return Fed(out, {"hook_gate": routed.gates}, {"balance": self.balance * routed.balance})


FEED_FORWARDS: dict[str, type[FeedForward]] = {
    "dense": Dense,
    "routed": RoutedExperts,
}

if TYPE_CHECKING:
    AnyFeedForward = FeedForward
else:
    AnyFeedForward = tagged(FEED_FORWARDS)
