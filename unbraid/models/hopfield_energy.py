"""The energy of Hopfield heads on a story: its fixed points, and how far apart the stored patterns are.

    attractors   how many different fixed points the story's queries reach    ξ = Xᵀ softmax(β X ξ + alibi)
    patterns     exp(entropy) of the softmax there: 1, a single token is recalled; N, an average of all
    separation   of a stored pattern x_i: x_i·x_i - max_{j≠i} x_i·x_j        (Ramsauer et al. 2021)

Every query is iterated as in the model until it stays where it is: X are the keys that it may attend to, and memories,
and the ALiBi bias is that of its position. So each query of a causal model has an energy function of its own. The
separation is that of all tokens of a story.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.errors import UserError
from unbraid.models.attention.attention import AttentionMask
from unbraid.models.attention.hopfield import Hopfield
from unbraid.models.transformer import Transformers

ITERATIONS = 200
SAME = 1e-3
"""Fixed points nearer than this share of the longest stored pattern are one."""


@dataclass(frozen=True)
class HopfieldEnergy:
    """Energies and fixed points of one layer's heads; NaN at padding."""

    energies: Float[Tensor, "m b h t i"]
    """Of each query, before and after each of the model's iterations."""
    fixed_points: Float[Tensor, "m b h t e"]
    """Where each query ends."""
    attractors: Int[Tensor, "m b h"]
    """Different fixed points of a story's queries."""
    patterns: Float[Tensor, "m b h t"]
    """Stored patterns that a fixed point is made of."""
    separation: Float[Tensor, "m b h t"]
    """Of each stored pattern from the most similar other."""


@torch.no_grad()
def hopfield_energy(models: Transformers, tokens: Int[Tensor, "b t"], layer: int) -> HopfieldEnergy:
    """Iterate every query of these stories to its fixed point, in float64.

    Parameters
    ----------
    models : Transformers
        With Hopfield attention.
    tokens : integer tensor `b t`
        Token ids; 0 is padding.
    layer : int
        Counted from 0.

    Returns
    -------
    HopfieldEnergy
        Energies, fixed points, attractors, patterns and separations of that layer's heads.

    Example
    -------
    >>> import torch
    >>> from unbraid.models import Hopfield, Transformer, hopfield_energy, start_models
    >>> config = Transformer(d_model=8, heads=2, d_ff=8, attention=Hopfield())
    >>> models = start_models(config, vocabulary=5, length=4, classes=3, seeds=[0])
    >>> hopfield_energy(models, torch.tensor([[1, 2, 3]]), layer=0).attractors.shape
    torch.Size([1, 1, 2])
    """
    attention = models.settings.attention
    if not isinstance(attention, Hopfield):
        kind = type(attention).__name__.lower()
        raise UserError(f"the Hopfield energy was asked of {kind} attention; accepted: a model with hopfield attention")
    prefix, models = f"blocks.{layer}.attn.", models.to(tokens.device)
    output = models.forward(tokens, [f"{prefix}hook_q", f"{prefix}hook_k", f"{prefix}hook_energy"])
    state, stored = (output.recorded[f"{prefix}{name}"].double() for name in ("hook_q", "hook_k"))
    beta = models.weights[f"{prefix}log_beta"].double().exp()[:, None, :, None, None]
    mask = output.attention_mask.token_mask
    separation = separations(stored, mask)
    stored, additive = _with_memories(models, prefix, stored, output.attention_mask)
    pattern = state
    for _ in range(ITERATIONS):
        pattern = (beta * state @ stored.mT + additive).softmax(-1)
        state = pattern @ stored
    hidden = ~mask[None, :, None, :, None]
    near = SAME * stored.square().sum(-1).amax(-1).sqrt()
    return HopfieldEnergy(
        energies=output.recorded[f"{prefix}hook_energy"].masked_fill(hidden, torch.nan),
        fixed_points=state.masked_fill(hidden, torch.nan),
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
    """How much more each stored pattern is like itself than like any other; infinite for one alone."""
    likeness = stored @ stored.mT
    own = likeness.diagonal(dim1=-2, dim2=-1)
    real = mask[None, :, None, :]
    others = real[..., None, :] & ~torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
    return (own - likeness.masked_fill(~others, -torch.inf).amax(-1)).masked_fill(~real, torch.nan)


def _with_memories(
    models: Transformers, prefix: str, stored: Float[Tensor, "m b h s e"], attention_mask: AttentionMask
) -> tuple[Float[Tensor, "m b h n e"], Float[Tensor, "#b #h #t n"]]:
    """What is stored, padding as nothing, and behind it the memories; and what is additive to its scores."""
    stored = stored * attention_mask.token_mask[None, :, None, :, None]
    additive = attention_mask.additive().double()
    memories = models.weights.get(f"{prefix}memory_keys")
    if memories is None:
        return stored, additive
    learned = memories.double()[:, None].expand(-1, len(stored[0]), -1, -1, -1)
    return torch.cat([stored, learned], 3), pad(additive, (0, memories.shape[2]))
