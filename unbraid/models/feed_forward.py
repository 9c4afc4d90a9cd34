"""Feed-forward layers: one hidden layer, applied to each token.

dense    W₂ gelu(W₁ x + b₁) + b₂
routed   the same with the hidden units in groups, experts, of which each token uses k: W₂ (gate · gelu(…)) + b₂
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field
from torch.nn.functional import gelu

from unbraid.axes import Bool, Float, Tensor
from unbraid.config import Config, tagged
from unbraid.models.attention.attention import Drop, Named, Weights
from unbraid.models.layers import InitialWeights, init_uniform, linear, route


@dataclass(frozen=True)
class FeedForwardInputs:
    """What a feed-forward layer is given."""

    x: Float[Tensor, "m b t d"]
    mask: Bool[Tensor, "b t"]
    weights: Weights
    asked: frozenset[str] = frozenset()
    drop: Drop | None = None


@dataclass(frozen=True)
class FeedForwardOutput:
    """What a feed-forward layer gives back."""

    out: Float[Tensor, "m b t d"]
    recorded: Named = field(default_factory=dict)
    costs: Named = field(default_factory=dict)


class FeedForward(Config, ABC):
    """The base class of feed-forward layers: what a block does to each token after attention.

    A subclass declares its settings as fields and implements `forward`.

    Attributes
    ----------
    hooks : frozenset of str
        What it can record.

    Examples
    --------
    >>> import unbraid as ub
    >>> layer: ub.FeedForward = ub.RoutedExperts()
    >>> sorted(layer.hooks)
    ['hook_gate']
    """

    hooks: ClassVar[frozenset[str]] = frozenset()

    def validate_hidden(self, hidden: int) -> None:
        """Raise ValueError if it cannot work with this many hidden units."""

    def parameters(self, rng: np.random.Generator, width: int, hidden: int) -> InitialWeights:
        """Its weights in one layer, as they begin."""
        return {
            "in.weight": init_uniform(rng, width, hidden, width),
            "in.bias": init_uniform(rng, width, hidden),
            "out.weight": init_uniform(rng, hidden, width, hidden),
            "out.bias": init_uniform(rng, hidden, width),
        }

    @abstractmethod
    def forward(self, inputs: FeedForwardInputs) -> FeedForwardOutput:
        """What is added to the residual stream."""


class Dense(FeedForward):
    """The standard feed-forward layer: one hidden layer of d_ff units with GELU.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.Transformer(d_ff=128).feed_forward
    Dense(kind='dense')
    """

    kind: Literal["dense"] = "dense"
    """Its name in a configuration."""

    def forward(self, inputs: FeedForwardInputs) -> FeedForwardOutput:
        return FeedForwardOutput(_finish(inputs, _begin(inputs)))


def _begin(inputs: FeedForwardInputs) -> Float[Tensor, "m b t f"]:
    """The hidden layer."""
    hidden = gelu(linear(inputs.x, inputs.weights["in.weight"], inputs.weights["in.bias"]))
    return hidden if inputs.drop is None else inputs.drop("hidden", hidden)


def _finish(inputs: FeedForwardInputs, hidden: Float[Tensor, "m b t f"]) -> Float[Tensor, "m b t d"]:
    out = linear(hidden, inputs.weights["out.weight"], inputs.weights["out.bias"])
    return out if inputs.drop is None else inputs.drop("out", out)


class RoutedExperts(FeedForward):
    """A mixture of experts: hidden units in equal groups; each token uses the k groups that its router scores highest.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.Transformer(d_ff=128, feed_forward=ub.RoutedExperts(experts=8, k=2)).feed_forward.experts
    8
    """

    kind: Literal["routed"] = "routed"
    """Its name in a configuration."""
    experts: int = Field(default=4, ge=1)
    """Number of groups of hidden units; must divide d_ff. More are narrower."""
    k: int = Field(default=1, ge=1)
    """Experts that each token uses, at most `experts`; more route less."""
    balance: float = Field(default=0.01, ge=0)
    """Weight of the load-balance loss; raising it evens out how often experts are chosen."""
    hooks: ClassVar[frozenset[str]] = frozenset({"hook_gate"})

    def validate_hidden(self, hidden: int) -> None:
        if hidden % self.experts:
            raise ValueError(f"d_ff is {hidden}, which {self.experts} experts do not divide; accepted: a multiple")
        if self.k > self.experts:
            raise ValueError(
                f"feed_forward.k is {self.k}, more than the {self.experts} experts; accepted: 1 to {self.experts}"
            )

    def parameters(self, rng: np.random.Generator, width: int, hidden: int) -> InitialWeights:
        return super().parameters(rng, width, hidden) | {"router": init_uniform(rng, width, self.experts, width)}

    def forward(self, inputs: FeedForwardInputs) -> FeedForwardOutput:
        routed = route(inputs.x, inputs.weights["router"], self.k, inputs.mask)
        groups = _begin(inputs).unflatten(-1, (self.experts, -1)) * routed.gates[..., None]
        out = _finish(inputs, groups.flatten(-2))
        return FeedForwardOutput(out, {"hook_gate": routed.gates}, {"balance": self.balance * routed.balance})


FEED_FORWARDS: dict[str, type[FeedForward]] = {
    "dense": Dense,
    "routed": RoutedExperts,
}

if TYPE_CHECKING:
    AnyFeedForward = FeedForward
else:
    AnyFeedForward = tagged(FEED_FORWARDS)
