"""The interface of attention, a configuration that says how heads score tokens and mix their values; and softmax.

| part         | what                                                                    | shape         |
|--------------|-------------------------------------------------------------------------|---------------|
| `parameters` | its own weights in one layer, as they begin: from a member's stream     | no member     |
| `mix`        | what each head reads, given queries, keys, values and a mask            | `HeadOutputs` |
| `hooks`      | names of what it can record beside what every attention records         |               |

    pattern = softmax(q kᵀ / √e + alibi)        z = pattern v

`mix` makes only what it is asked for: with nothing asked and nothing dropped there is no pattern in memory, and torch's
`scaled_dot_product_attention` does the rest.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.config import Config
from unbraid.models.layers import InitialWeights

Named = dict[str, Tensor]
Weights = Mapping[str, Tensor]
Drop = Callable[[str, Tensor], Tensor]
"""Dropout of a named tensor."""


@dataclass(frozen=True)
class AttentionMask:
    """Which keys a query may attend to: itself and earlier ones if causal, else all that are not padding.

    Padding stands at the right, so that a causal query never attends to it.
    """

    causal: bool
    token_mask: Bool[Tensor, "b t"]
    """False at padding."""
    alibi: Float[Tensor, "h t s"] | None = None
    """What is added to the scores of each head for the distance between tokens."""

    def allowed(self) -> Bool[Tensor, "#b 1 #t s"]:
        """Which keys each query may attend to."""
        tokens = self.token_mask.shape[1]
        if self.causal:
            return self.token_mask.new_ones(1, 1, tokens, tokens).tril()
        return self.token_mask[:, None, None, :]

    def additive(self) -> Float[Tensor, "#b #h #t s"]:
        """What is added to scores: 0 or the ALiBi bias, and -inf for keys that are masked."""
        allowed = self.allowed()
        bias = torch.zeros(1, 1, 1) if self.alibi is None else self.alibi
        return torch.where(allowed, bias.to(allowed.device), -torch.inf)

    def key_counts(self) -> Int[Tensor, "b t"]:
        """How many keys each query may attend to."""
        if self.causal:
            keys = torch.arange(1, self.token_mask.shape[1] + 1, device=self.token_mask.device)
            return keys.expand_as(self.token_mask)
        return self.token_mask.sum(1, keepdim=True).expand_as(self.token_mask)


@dataclass(frozen=True)
class HeadInputs:
    """What the heads of a layer are given."""

    x: Float[Tensor, "m b t d"]
    q: Float[Tensor, "m b h t e"]
    k: Float[Tensor, "m b h t e"]
    v: Float[Tensor, "m b h t e"]
    mask: AttentionMask
    weights: Weights
    """The attention's own, by the names of `parameters`."""
    asked: frozenset[str] = frozenset()
    """What to record, as `hook_pattern`."""
    drop: Drop | None = None


@dataclass(frozen=True)
class HeadOutputs:
    """What the heads of a layer read."""

    z: Float[Tensor, "m b h t e"]
    gate: Float[Tensor, "m b t h"] | None = None
    """How much of each head a token takes; None: all of all."""
    recorded: Named = field(default_factory=dict)
    costs: Named = field(default_factory=dict)
    """Costs of the attention itself, each `m`."""


class Attention(Config, ABC):
    """The base class of attention kinds: how heads score tokens and mix their values.

    A subclass declares its settings as fields and implements `mix`. Override `parameters` where it has weights of its
    own, and `validate_heads` where it cannot serve every number of heads.

    Attributes
    ----------
    hooks : frozenset of str
        What it can record, as `hook_pattern`.

    Examples
    --------
    >>> import unbraid as ub
    >>> attention: ub.Attention = ub.Softmax()
    >>> sorted(attention.hooks)
    ['hook_pattern']
    """

    hooks: ClassVar[frozenset[str]] = frozenset({"hook_pattern"})

    def validate_heads(self, heads: int) -> None:
        """Raise ValueError if it cannot work with so many heads."""

    def parameters(self, rng: np.random.Generator, width: int, heads: int) -> InitialWeights:
        """Its own weights in one layer."""
        return {}

    @abstractmethod
    def mix(self, inputs: HeadInputs) -> HeadOutputs:
        """What each head reads."""


class Softmax(Attention):
    """Standard attention: each head reads the values of all tokens, weighted by softmax(q·k / √head_width).

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.Transformer(attention=ub.Softmax()).head_labels
    ('softmax', 'softmax', 'softmax', 'softmax')
    """

    kind: Literal["softmax"] = "softmax"
    """Its name in a configuration."""

    def mix(self, inputs: HeadInputs) -> HeadOutputs:
        return mix_by_softmax(inputs)


def mix_by_softmax(inputs: HeadInputs) -> HeadOutputs:
    """By torch's fused kernel, unless the pattern is recorded or dropped from."""
    if inputs.drop is None and "hook_pattern" not in inputs.asked:
        return HeadOutputs(fused_attention(inputs.q, inputs.k, inputs.v, inputs.mask))
    scores = inputs.q @ inputs.k.mT * inputs.q.shape[-1] ** -0.5
    pattern = (scores + inputs.mask.additive().to(scores.dtype)).softmax(-1)
    if inputs.drop is not None:
        pattern = inputs.drop("pattern", pattern)
    return HeadOutputs(pattern @ inputs.v, recorded={"hook_pattern": pattern})


def fused_attention(
    q: Float[Tensor, "m b h t e"],
    k: Float[Tensor, "m b h s e"],
    v: Float[Tensor, "m b h s e"],
    mask: AttentionMask,
    additive: Float[Tensor, "#b #h #t s"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "m b h t e"]:
    """By torch's kernel, with members and sequences as one axis; `additive` where there are keys beside the tokens."""
    members = len(q)
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    if additive is None and mask.causal and mask.alibi is None:
        z = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    else:
        additive = mask.additive() if additive is None else additive
        additive = additive if len(additive) == 1 else additive.repeat(members, 1, 1, 1)
        z = scaled_dot_product_attention(q, k, v, attn_mask=additive.to(q.dtype), scale=scale)
    return z.unflatten(0, (members, -1))
