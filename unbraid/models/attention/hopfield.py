"""Attention as associative memory: a query is drawn towards what is stored, several times over (Ramsauer et al. 2021).

    pattern = softmax(β X ξ + alibi)           ξ ← Xᵀ pattern        ξ begins as the query
    z = pattern · values                       with the last pattern; X: the keys that are not masked, then memories
    E(ξ) = -log(Σ exp(β X ξ + alibi))/β + ½ ξ·ξ + log(N)/β + ½ max |x|²        never rises

Each head learns its own β, which begins at 1/√e. `memories` are patterns that each head learns and always attends to,
each with a value. With one iteration, no memories and β = 1/√e this is softmax attention. When nothing is recorded,
each iteration is torch's `scaled_dot_product_attention`. `unbraid.models.hopfield_energy` measures attractors and
separation.
"""

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch.nn.functional import pad

from unbraid.axes import Float, Tensor
from unbraid.models.attention.attention import Attention, HeadInputs, HeadOutputs, Named, fused_attention
from unbraid.models.layers import InitialWeights

PATTERN_DEVIATION = 3**-0.5
"""Of a key's numbers when a model starts."""


class Hopfield(Attention):
    """Attention as a modern Hopfield network (Ramsauer et al. 2021): queries move towards stored keys before they read.

    Each head learns its own inverse temperature β, which begins at 1/√head_width.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.Transformer(heads=2, attention=ub.Hopfield(iterations=2, memories=8)).head_labels
    ('hopfield', 'hopfield')
    """

    kind: Literal["hopfield"] = "hopfield"
    """Its name in a configuration."""
    iterations: int = Field(default=3, ge=1, le=1024)
    """Retrieval steps; 1 is softmax attention with a learned temperature, more get nearer to a fixed point."""
    memories: int = Field(default=0, ge=0, le=1 << 16)
    """Learned keys and values per head, stored beside the tokens'; more can hold more that is in no sequence."""
    hooks: ClassVar[frozenset[str]] = frozenset({"hook_pattern", "hook_memory", "hook_energy"})

    def parameters(self, rng: np.random.Generator, width: int, heads: int) -> InitialWeights:
        weights: InitialWeights = {"log_beta": np.full(heads, -0.5 * np.log(width // heads), np.float32)}
        for name in ("memory_keys", "memory_values") if self.memories else ():
            drawn = rng.standard_normal((heads, self.memories, width // heads), np.float32)
            weights[name] = PATTERN_DEVIATION * drawn
        return weights

    def mix(self, inputs: HeadInputs) -> HeadOutputs:
        stored, values, additive = self._memory(inputs)
        beta = inputs.weights["log_beta"].exp()[:, None, :, None, None]
        if inputs.drop is None and not inputs.asked & self.hooks:
            state, bias = inputs.q, additive if self.memories else None
            for read in [stored] * (self.iterations - 1) + [values]:
                state = fused_attention(beta * state, stored, read, inputs.mask, bias, scale=1.0)
            return HeadOutputs(state)
        return self._with_patterns(inputs, stored, values, additive.to(stored.dtype), beta)

    def _with_patterns(
        self, inputs: HeadInputs, stored: Tensor, values: Tensor, additive: Tensor, beta: Tensor
    ) -> HeadOutputs:
        """The same with every pattern in memory."""
        states, pattern = [inputs.q], inputs.q
        for _ in range(self.iterations):
            pattern = (beta * states[-1] @ stored.mT + additive).softmax(-1)
            states.append(pattern @ stored)
        if inputs.drop is not None:
            pattern = inputs.drop("pattern", pattern)
        tokens = inputs.k.shape[3]
        recorded: Named = {"hook_pattern": pattern[..., :tokens], "hook_memory": pattern[..., tokens:]}
        if "hook_energy" in inputs.asked:
            recorded["hook_energy"] = torch.stack([energy(state, stored, additive, beta) for state in states], -1)
        return HeadOutputs(pattern @ values, recorded=recorded)

    def _memory(self, inputs: HeadInputs) -> tuple[Tensor, Tensor, Tensor]:
        """What is stored, its values, and what is added to its scores: tokens, then memories."""
        additive = inputs.mask.additive()
        if not self.memories:
            return inputs.k, inputs.v, additive
        stories = inputs.k.shape[1]
        keys, values = (
            torch.cat([of_tokens, inputs.weights[name][:, None].expand(-1, stories, -1, -1, -1)], 3)
            for of_tokens, name in ((inputs.k, "memory_keys"), (inputs.v, "memory_values"))
        )
        return keys, values, pad(additive, (0, self.memories))


def energy(
    state: Float[Tensor, "m b h t e"],
    stored: Float[Tensor, "m b h s e"],
    additive: Float[Tensor, "#b #h #t s"],
    beta: Float[Tensor, "m 1 h 1 1"],
) -> Float[Tensor, "m b h t"]:
    """The Hopfield energy of each state among the keys it may attend to; 0 at the least."""
    scores = beta * state @ stored.mT + additive
    allowed = additive > -torch.inf
    amount = allowed.sum(-1).to(state.dtype)
    longest = stored.square().sum(-1)[..., None, :].masked_fill(~allowed, 0).amax(-1)
    return (amount.log() - scores.logsumexp(-1)) / beta[..., 0] + (state.square().sum(-1) + longest) / 2
