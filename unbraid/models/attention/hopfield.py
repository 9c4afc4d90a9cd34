"""Attention as associative memory: a query is drawn towards what is stored, several times over (Ramsauer et al. 2021).

    pattern = softmax(β X ξ + nearness)        ξ ← Xᵀ pattern        ξ begins as the query
    z = pattern · values                       with the last pattern; X: the keys in sight, then memories
    E(ξ) = -log(Σ exp(β X ξ + nearness))/β + ½ ξ·ξ + log(N)/β + ½ max |x|²        never rises

Each head learns its own β, which begins at 1/√e. `memories` are patterns that each head learns and always sees, each
with a value. With one iteration, no memories and β = 1/√e this is softmax attention. When nothing is asked for, each
iteration is torch's `scaled_dot_product_attention`. `unbraid.models.landscape` tells of attractors and separation.
"""

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch.nn.functional import pad

from unbraid.axes import Float, Tensor
from unbraid.models.attention.attention import Attention, Heads, Mixed, Named
from unbraid.models.attention.softmax import without_pattern
from unbraid.models.starting import Start

PATTERN_DEVIATION = 3**-0.5
"""Of a key's numbers when a model starts."""


class Hopfield(Attention):
    kind: Literal["hopfield"] = "hopfield"
    iterations: int = Field(default=3, ge=1, le=1024)
    memories: int = Field(default=0, ge=0, le=1 << 16)
    hooks: ClassVar[frozenset[str]] = frozenset({"hook_pattern", "hook_memory", "hook_energy"})

    def parameters(self, rng: np.random.Generator, width: int, heads: int) -> Start:
        own: Start = {"log_beta": np.full(heads, -0.5 * np.log(width // heads), np.float32)}
        for name in ("memory_keys", "memory_values") if self.memories else ():
            drawn = rng.standard_normal((heads, self.memories, width // heads), np.float32)
            own[name] = PATTERN_DEVIATION * drawn
        return own

    def mix(self, given: Heads) -> Mixed:
        stored, values, added = self._memory(given)
        beta = given.weights["log_beta"].exp()[:, None, :, None, None]
        if given.drop is None and not given.asked & self.hooks:
            state, beside = given.q, added if self.memories else None
            for read in [stored] * (self.iterations - 1) + [values]:
                state = without_pattern(beta * state, stored, read, given.sight, beside, scale=1.0)
            return Mixed(state)
        return self._openly(given, stored, values, added.to(stored.dtype), beta)

    def _openly(self, given: Heads, stored: Tensor, values: Tensor, added: Tensor, beta: Tensor) -> Mixed:
        """The same with every pattern in the open."""
        states, pattern = [given.q], given.q
        for _ in range(self.iterations):
            pattern = (beta * states[-1] @ stored.mT + added).softmax(-1)
            states.append(pattern @ stored)
        if given.drop is not None:
            pattern = given.drop("pattern", pattern)
        tokens = given.k.shape[3]
        recorded: Named = {"hook_pattern": pattern[..., :tokens], "hook_memory": pattern[..., tokens:]}
        if "hook_energy" in given.asked:
            recorded["hook_energy"] = torch.stack([energy(state, stored, added, beta) for state in states], -1)
        return Mixed(pattern @ values, recorded=recorded)

    def _memory(self, given: Heads) -> tuple[Tensor, Tensor, Tensor]:
        """What is stored, its values, and what is added to its scores: tokens, then memories."""
        added = given.sight.added()
        if not self.memories:
            return given.k, given.v, added
        stories = given.k.shape[1]
        keys, values = (
            torch.cat([own, given.weights[name][:, None].expand(-1, stories, -1, -1, -1)], 3)
            for own, name in ((given.k, "memory_keys"), (given.v, "memory_values"))
        )
        return keys, values, pad(added, (0, self.memories))


def energy(
    state: Float[Tensor, "m b h t e"],
    stored: Float[Tensor, "m b h s e"],
    added: Float[Tensor, "#b #h #t s"],
    beta: Float[Tensor, "m 1 h 1 1"],
) -> Float[Tensor, "m b h t"]:
    """How far each state is from rest among what it may see; 0 at the least."""
    scores = beta * state @ stored.mT + added
    allowed = added > -torch.inf
    amount = allowed.sum(-1).to(state.dtype)
    longest = stored.square().sum(-1)[..., None, :].masked_fill(~allowed, 0).amax(-1)
    return (amount.log() - scores.logsumexp(-1)) / beta[..., 0] + (state.square().sum(-1) + longest) / 2
