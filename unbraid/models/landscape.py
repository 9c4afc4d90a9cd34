"""What a Hopfield head remembers in a story: where its queries come to rest, and how far apart what is stored lies.

    attractors   how many different resting places the story's queries have   rest: ξ = Xᵀ softmax(β X ξ + nearness)
    patterns     exp(entropy) of the softmax at rest: 1, a single token is recalled; N, an average of all
    separation   of a stored pattern x_i: x_i·x_i - max_{j≠i} x_i·x_j        (Ramsauer et al. 2021)

Every query comes to rest by the iteration of the model itself, which would go on for ever there: X are the keys that it
may see, and memories, and nearness is added for the place where it stands. So queries of a causal model each have a
landscape of their own. The separation is that of all tokens of a story.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.errors import Refusal
from unbraid.models.attention.attention import Sight
from unbraid.models.attention.hopfield import Hopfield
from unbraid.models.transformer import Transformers

ITERATIONS = 200
SAME = 1e-3
"""Resting places nearer than this share of the longest stored pattern are one."""


@dataclass(frozen=True)
class Landscape:
    """Of one layer; what belongs to padding is not a number, NaN."""

    energies: Float[Tensor, "m b h t i"]
    """Of each query, before and after each of the model's iterations."""
    resting: Float[Tensor, "m b h t e"]
    """Where each query comes to rest."""
    attractors: Int[Tensor, "m b h"]
    patterns: Float[Tensor, "m b h t"]
    separation: Float[Tensor, "m b h t"]


@torch.no_grad()
def landscape(models: Transformers, tokens: Int[Tensor, "b t"], layer: int) -> Landscape:
    """Let every query of these stories come to rest, in float64."""
    attention = models.settings.attention
    if not isinstance(attention, Hopfield):
        kind = type(attention).__name__.lower()
        raise Refusal(f"a landscape was asked of {kind} attention; accepted: a model with hopfield attention")
    place = f"blocks.{layer}.attn."
    passed = models.forward(tokens, [f"{place}hook_q", f"{place}hook_k", f"{place}hook_energy"])
    state, stored = (passed.recorded[f"{place}{name}"].double() for name in ("hook_q", "hook_k"))
    beta = models.weights[f"{place}log_beta"].double().exp()[:, None, :, None, None]
    mask = passed.sight.mask
    separation = separations(stored, mask)
    stored, added = _with_memories(models, place, stored, passed.sight)
    pattern = state
    for _ in range(ITERATIONS):
        pattern = (beta * state @ stored.mT + added).softmax(-1)
        state = pattern @ stored
    hidden = ~mask[None, :, None, :, None]
    near = SAME * stored.square().sum(-1).amax(-1).sqrt()
    return Landscape(
        energies=passed.recorded[f"{place}hook_energy"].masked_fill(hidden, torch.nan),
        resting=state.masked_fill(hidden, torch.nan),
        attractors=distinct(state, mask, near),
        patterns=torch.special.entr(pattern).sum(-1).exp().masked_fill(hidden[..., 0], torch.nan),
        separation=separation,
    )


def distinct(
    states: Float[Tensor, "m b h t e"], mask: Bool[Tensor, "b t"], near: Float[Tensor, "m b h"]
) -> Int[Tensor, "m b h"]:
    """How many of these are farther than `near` from all before them."""
    close = torch.cdist(states, states) <= near[..., None, None]
    real = mask[None, :, None, :]
    seen_before = (close & real[..., None, :]).tril(-1).any(-1)
    return (~seen_before & real).sum(-1)


def separations(stored: Float[Tensor, "m b h s e"], mask: Bool[Tensor, "b s"]) -> Float[Tensor, "m b h s"]:
    """How much more each stored pattern is like itself than like any other; alone, it is infinitely far."""
    likeness = stored @ stored.mT
    own = likeness.diagonal(dim1=-2, dim2=-1)
    real = mask[None, :, None, :]
    others = real[..., None, :] & ~torch.eye(mask.shape[1], dtype=torch.bool)
    return (own - likeness.masked_fill(~others, -torch.inf).amax(-1)).masked_fill(~real, torch.nan)


def _with_memories(
    models: Transformers, place: str, stored: Float[Tensor, "m b h s e"], sight: Sight
) -> tuple[Float[Tensor, "m b h n e"], Float[Tensor, "#b #h #t n"]]:
    """What is stored, padding as nothing, and behind it the memories; and what is added to its scores."""
    stored, added = stored * sight.mask[None, :, None, :, None], sight.added().double()
    memories = models.weights.get(f"{place}memory_keys")
    if memories is None:
        return stored, added
    beside = memories.double()[:, None].expand(-1, len(stored[0]), -1, -1, -1)
    return torch.cat([stored, beside], 3), pad(added, (0, memories.shape[2]))
