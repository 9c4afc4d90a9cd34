"""m models of one shape as one set of stacked tensors: what every kind of transformer has in common.

One model is a stack of one. What is recorded is what is used: it is kept as it passes, and only where it is named.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.errors import Refusal
from unbraid.models.attention import Sight
from unbraid.models.attention.attention import Named
from unbraid.models.layers import linear
from unbraid.models.positions import nearness
from unbraid.models.shape import Shape

PADDING = 0
"""The word that stands where a sequence has ended."""


@dataclass(frozen=True)
class Passed:
    """What one pass over a batch leaves."""

    resid: Float[Tensor, "m b t d"]
    """The residual stream as answers are read from it."""
    sight: Sight
    recorded: Named
    costs: Named
    """Costs of the model itself, as load balance, each `m`."""


@dataclass(frozen=True)
class Models(ABC):
    """The weights of m transformers. Training changes them in place; nothing else does."""

    settings: Shape
    length: int
    """Of the longest sequence."""
    seeds: tuple[int, ...]
    weights: Named

    @abstractmethod
    def forward(
        self,
        tokens: Int[Tensor, "b t"],
        record: Collection[str] = (),
        silence: Iterable[tuple[int, int]] = (),
        step: int | None = None,
    ) -> Passed:
        """Pass over a batch; `silence` zeroes what (layer, head) read; `step` is that of a training, which drops."""

    @property
    @abstractmethod
    def words(self) -> int:
        """How many the vocabulary has."""

    def parameters(self) -> Named:
        """What gradients may change, by name."""
        return dict(self.weights)

    def with_parameters(self, parameters: Named) -> Self:
        return replace(self, weights=parameters)

    def leaves(self) -> Self:
        """The same tensors, seen by autograd."""
        return self.with_parameters({name: p.detach().requires_grad_() for name, p in self.weights.items()})

    def member(self, index: int) -> Self:
        """One member, as a stack of one."""
        own = {name: p[index : index + 1] for name, p in self.weights.items()}
        return replace(self, seeds=self.seeds[index : index + 1], weights=own)

    @property
    def members(self) -> int:
        return len(self.seeds)

    def read(self, passed: Passed, asked: Int[Tensor, "b q"]) -> Float[Tensor, "m b q c"]:
        """Logits of the answers to each question of each story."""
        if self.settings.readout == "mean":
            mask = passed.sight.mask[:, :, None].to(passed.resid.dtype)
            rows = (passed.resid * mask).sum(2) / mask.sum(1)
            rows = rows[:, :, None, :].expand(-1, -1, asked.shape[1], -1)
        else:
            places = asked[None, :, :, None].expand(self.members, -1, -1, passed.resid.shape[-1])
            rows = passed.resid.gather(2, places)
        return linear(rows, self.weights["answer.weight"], self.weights.get("answer.bias"))

    def sight(self, tokens: Int[Tensor, "b t"], near: bool) -> Sight:
        """Who may see whom; tokens that the model cannot take are refused."""
        self._refuse(tokens)
        mask: Bool[Tensor, "b t"] = tokens != PADDING
        mask[:, 0] = True  # so that a story without a word is no division by zero
        if not near:
            return Sight(self.settings.causal, mask)
        length = mask.shape[1]
        return Sight(
            self.settings.causal, mask, nearness(self.length, self.settings.heads_a_layer)[:, :length, :length]
        )

    def audible(self, silence: Iterable[tuple[int, int]]) -> Mapping[int, Tensor]:
        """Of each layer with a silenced head: which heads are heard."""
        heard: dict[int, Tensor] = {}
        for layer, head in silence:
            if not (0 <= layer < self.settings.layers and 0 <= head < self.settings.heads_a_layer):
                raise Refusal(
                    f"head {head} of layer {layer} was to be silenced; the model has {self.settings.layers} layers of "
                    f"{self.settings.heads_a_layer} heads; accepted: layer and head counted from 0"
                )
            heard.setdefault(layer, torch.ones(self.settings.heads_a_layer))[head] = 0
        return heard

    def _refuse(self, tokens: Int[Tensor, "b t"]) -> None:
        if tokens.shape[1] > self.length:
            raise Refusal(
                f"a sequence of {tokens.shape[1]} tokens was given to a model of {self.length} positions; "
                f"accepted: at most {self.length} tokens"
            )
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.words:
            wrong = next(word for word in tokens.flatten().tolist() if not 0 <= word < self.words)
            raise Refusal(
                f"the word {wrong} was given to a model of {self.words} words; accepted: 0 to {self.words - 1}"
            )
