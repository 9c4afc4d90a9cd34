"""The face of an attention: a record of settings that says how heads score tokens and mix their values.

| part         | what                                                                           | shape        |
|--------------|--------------------------------------------------------------------------------|--------------|
| `parameters` | weights of its own in one layer, as they start: from a member's stream          | no member    |
| `mix`        | what each head reads, given queries, keys, values and who may see whom          | `Mixed`      |
| `hooks`      | names of what it can record beside what every attention records                 |              |

`mix` makes only what it is asked for: with nothing asked and nothing dropped there is no pattern in memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.config import Record
from unbraid.models.starting import Start

Named = dict[str, Tensor]
Weights = Mapping[str, Tensor]
Drop = Callable[[str, Tensor], Tensor]
"""Dropout at a named place."""


@dataclass(frozen=True)
class Sight:
    """Who may see whom: earlier tokens and oneself if causal, else every token that is not padding; and how well.

    Padding stands at the right, so that who looks only back never sees it.
    """

    causal: bool
    mask: Bool[Tensor, "b t"]
    nearness: Float[Tensor, "h t s"] | None = None
    """What is added to the scores of each head for how far tokens are apart."""

    def allowed(self) -> Bool[Tensor, "#b 1 #t s"]:
        tokens = self.mask.shape[1]
        if self.causal:
            return torch.ones(1, 1, tokens, tokens, dtype=torch.bool).tril()
        return self.mask[:, None, None, :]

    def added(self) -> Float[Tensor, "#b #h #t s"]:
        """What is added to scores: nothing, or what nearness says, and -inf for what may not be seen."""
        nearness = torch.zeros(1, 1, self.mask.shape[1]) if self.nearness is None else self.nearness
        return torch.where(self.allowed(), nearness, -torch.inf)

    def keys(self) -> Int[Tensor, "b t"]:
        """How many keys each query may see."""
        if self.causal:
            return torch.arange(1, self.mask.shape[1] + 1).expand_as(self.mask)
        return self.mask.sum(1, keepdim=True).expand_as(self.mask)


@dataclass(frozen=True)
class Heads:
    """What the heads of a layer are given."""

    x: Float[Tensor, "m b t d"]
    q: Float[Tensor, "m b h t e"]
    k: Float[Tensor, "m b h t e"]
    v: Float[Tensor, "m b h t e"]
    sight: Sight
    weights: Weights
    """The attention's own, by the names of `parameters`."""
    asked: frozenset[str] = frozenset()
    """What to record, as `hook_pattern`."""
    drop: Drop | None = None


@dataclass(frozen=True)
class Mixed:
    """What the heads of a layer read."""

    z: Float[Tensor, "m b h t e"]
    gate: Float[Tensor, "m b t h"] | None = None
    """How much of each head a token takes; None: all of all."""
    recorded: Named = field(default_factory=dict)
    costs: Named = field(default_factory=dict)
    """Costs of the attention itself, each `m`."""


class Attention(Record, ABC):
    hooks: ClassVar[frozenset[str]] = frozenset({"hook_pattern"})

    def refuse(self, heads: int) -> None:
        """A ValueError if it cannot work with so many heads."""

    def parameters(self, rng: np.random.Generator, width: int, heads: int) -> Start:
        return {}

    @abstractmethod
    def mix(self, given: Heads) -> Mixed: ...
