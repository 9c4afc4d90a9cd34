"""m transformers of one shape as one set of stacked tensors, on one page; one model is a stack of one.

    x ← embed(tokens) + positions
    x ← x + attention(norm x)        x ← x + feed_forward(norm x)        for each layer
    answer = read(norm x)            at the question's last token, or from the mean over tokens

With sinusoidal positions the embedding is multiplied by √d, as in Vaswani et al. (2017). Queries, keys, values and the
heads' output have no bias. What is recorded is what is used: it is kept as it passes, and only where it is named.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.errors import Refusal
from unbraid.models.attention import Sight
from unbraid.models.attention.attention import Named
from unbraid.models.block import Passing, pass_layer
from unbraid.models.dropout import Dropout
from unbraid.models.layers import linear, look_up
from unbraid.models.positions import nearness, waves
from unbraid.models.recording import recorder
from unbraid.models.settings import Transformer
from unbraid.models.weights import start_of

PADDING = 0
"""The word that stands where a story has ended."""


@dataclass(frozen=True)
class Passed:
    """What one pass over a batch leaves."""

    resid: Float[Tensor, "m b t d"]
    """The residual stream after the final norm."""
    sight: Sight
    recorded: Named
    costs: Named
    """Costs of the model itself, as load balance, each `m`."""


@dataclass(frozen=True)
class Models:
    """The weights of m transformers. Training changes them in place; nothing else does."""

    settings: Transformer
    length: int
    """Of the longest sequence."""
    seeds: tuple[int, ...]
    weights: Named

    @classmethod
    def start(cls, settings: Transformer, vocabulary: int, length: int, classes: int, seeds: Sequence[int]) -> "Models":
        """Each member from its own seed."""
        drawn = [start_of(settings, vocabulary, length, classes, seed) for seed in seeds]
        weights = {name: torch.from_numpy(np.stack([one[name] for one in drawn])) for name in drawn[0]}
        return cls(settings, length, tuple(seeds), weights)

    def parameters(self) -> Named:
        """What gradients may change, by name."""
        return dict(self.weights)

    def with_parameters(self, parameters: Named) -> "Models":
        return replace(self, weights=parameters)

    def leaves(self) -> "Models":
        """The same tensors, seen by autograd."""
        return self.with_parameters({name: p.detach().requires_grad_() for name, p in self.weights.items()})

    def member(self, index: int) -> "Models":
        """One member, as a stack of one."""
        own = {name: p[index : index + 1] for name, p in self.weights.items()}
        return replace(self, seeds=self.seeds[index : index + 1], weights=own)

    @property
    def members(self) -> int:
        return len(self.seeds)

    def forward(
        self,
        tokens: Int[Tensor, "b t"],
        record: Collection[str] = (),
        silence: Iterable[tuple[int, int]] = (),
        step: int | None = None,
    ) -> Passed:
        """Pass over a batch; `silence` zeroes what (layer, head) read; `step` is that of a training, which drops."""
        self._refuse(tokens)
        mask = tokens != PADDING
        mask[:, 0] = True  # so that a story without a word is no division by zero
        dropout = (
            Dropout(self.settings.dropout, self.seeds, step) if step is not None and self.settings.dropout else None
        )
        passing = Passing(
            self.settings,
            self.weights,
            self._sight(mask),
            recorder(self.settings, frozenset(record)),
            self._audible(silence),
            dropout,
        )
        x = self._embed(tokens)
        x = x if dropout is None else dropout.at("", "embed", x)
        for layer in range(self.settings.layers):
            x = pass_layer(layer, x, passing)
        return Passed(passing.norm("final_norm", x), passing.sight, passing.recorder.kept, passing.costs)

    def read(self, passed: Passed, asked: Int[Tensor, "b q"]) -> Float[Tensor, "m b q c"]:
        """Logits of the answers to each question of each story."""
        if self.settings.readout == "mean":
            mask = passed.sight.mask[:, :, None].to(passed.resid.dtype)
            rows = (passed.resid * mask).sum(2) / mask.sum(1)
            rows = rows[:, :, None, :].expand(-1, -1, asked.shape[1], -1)
        else:
            places = asked[None, :, :, None].expand(self.members, -1, -1, passed.resid.shape[-1])
            rows = passed.resid.gather(2, places)
        return linear(rows, self.weights["answer.weight"], self.weights["answer.bias"])

    def _embed(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "m b t d"]:
        x, length = look_up(self.weights["embed"], tokens), tokens.shape[1]
        match self.settings.positions:
            case "learned":
                return x + self.weights["positions"][:, None, :length]
            case "sinusoidal":
                width = self.settings.d_model
                return x * width**0.5 + waves(self.length, width)[:length].to(x.dtype)
            case "rotary" | "nearness":
                return x

    def _sight(self, mask: Bool[Tensor, "b t"]) -> Sight:
        if self.settings.positions != "nearness":
            return Sight(self.settings.causal, mask)
        tokens = mask.shape[1]
        return Sight(self.settings.causal, mask, nearness(self.length, self.settings.heads)[:, :tokens, :tokens])

    def _audible(self, silence: Iterable[tuple[int, int]]) -> Mapping[int, Tensor]:
        """Of each layer with a silenced head: which heads are heard."""
        audible: dict[int, Tensor] = {}
        for layer, head in silence:
            if not (0 <= layer < self.settings.layers and 0 <= head < self.settings.heads):
                raise Refusal(
                    f"head {head} of layer {layer} was to be silenced; the model has {self.settings.layers} layers of "
                    f"{self.settings.heads} heads; accepted: layer and head counted from 0"
                )
            audible.setdefault(layer, torch.ones(self.settings.heads))[head] = 0
        return audible

    def _refuse(self, tokens: Int[Tensor, "b t"]) -> None:
        if tokens.shape[1] > self.length:
            raise Refusal(
                f"a sequence of {tokens.shape[1]} tokens was given to a model of {self.length} positions; "
                f"accepted: at most {self.length} tokens"
            )
        words = self.weights["embed"].shape[1]
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < words:
            wrong = next(word for word in tokens.flatten().tolist() if not 0 <= word < words)
            raise Refusal(f"the word {wrong} was given to a model of {words} words; accepted: 0 to {words - 1}")
